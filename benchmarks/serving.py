"""python -m benchmarks.serving: what adapters cost on this machine, against the same engine without any.

`--figure NAME` measures one row of the targets, or one of the paper's figures (docs/benchmarks.md); without it the
kinds, profile, mix and number of adapters given are measured. All engines stay up. What is compared runs on the same
requests in slices of a second, one engine after the other, so that a machine's moods meet both; a ratio pairs runs of
one round. Prints tables, and writes JSON that benchmarks.plots draws.
"""

import argparse
import dataclasses
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.figures import FIGURES, Case, Figure, compared
from benchmarks.kinds import KINDS
from benchmarks.machine import ROOT, machine
from benchmarks.measurement import Model, measure
from benchmarks.model_shapes import DUMMY_LORA_UP, DUMMY_OPTIONS, SHAPES, write_model
from benchmarks.reports import report, summary
from benchmarks.workload import MIXES, PROFILES

#: They replace what a figure says.
OVERRIDES = ("requests", "max_tokens", "rounds", "batch", "gpu_slots", "cpu_slots")


def arguments_of(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="figures:\n" + "\n".join(f"  {name:<14}{figure.title}" for name, figure in FIGURES.items()),
    )
    parser.add_argument("--figure", choices=FIGURES)
    parser.add_argument("--kinds", default="base,lora_stock,lora_p,direft_p", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--profile", choices=PROFILES, default="punica")
    parser.add_argument("--mix", choices=MIXES, default="uniform")
    parser.add_argument("--adapters", type=int, default=32)
    parser.add_argument("--base", type=Path, default=ROOT / ".attune/models/smollm2-135m-instruct")
    parser.add_argument(
        "--shape", choices=SHAPES, help="a model of these sizes and random weights, not --base"
    )
    parser.add_argument("--lora-rank", type=int, default=8)
    parser.add_argument("--reft-rank", type=int, default=8)
    for name in OVERRIDES:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int)
    parser.add_argument(
        "--quick", action="store_true", help="one small round: shows that it works, measures nothing"
    )
    parser.add_argument("--out", type=Path, help="benchmarks/results/NAME.json unless said")
    parser.add_argument(
        "--logs", type=Path, help="a folder for the engines' logs; they are thrown away unless said"
    )
    arguments = parser.parse_args(words)
    if unknown := set(arguments.kinds.split(",")) - set(KINDS):
        parser.error(f"--kinds: {', '.join(sorted(unknown))} is none of {', '.join(KINDS)}.")
    if not 1 <= arguments.adapters <= 512:
        parser.error("--adapters: from 1 to 512.")
    return arguments


def figure_of(arguments: argparse.Namespace) -> Figure:
    """The figure that is named or described, as the arguments change it."""
    if arguments.figure:
        figure = FIGURES[arguments.figure]
    else:
        cases = [
            Case(kind, arguments.profile)
            if KINDS[kind].method is None
            else Case(kind, arguments.profile, arguments.mix, arguments.adapters)
            for kind in arguments.kinds.split(",")
        ]
        figure = Figure("Adapters and their cost", compared(*cases))
    if arguments.quick:
        figure = dataclasses.replace(figure, requests=min(figure.requests, 16), rounds=1)
    changes = {name: value for name in OVERRIDES if (value := getattr(arguments, name)) is not None}
    return dataclasses.replace(figure, **changes)


def model_of(arguments: argparse.Namespace, work: Path) -> Model:
    ranks = {"lora_rank": arguments.lora_rank, "reft_rank": arguments.reft_rank}
    if arguments.shape is None:
        return Model(arguments.base, **ranks)
    folder = work / arguments.shape
    write_model(folder, arguments.shape)
    return Model(folder, **ranks, options=DUMMY_OPTIONS, lora_up=DUMMY_LORA_UP)


def main() -> None:
    arguments = arguments_of()
    figure = figure_of(arguments)
    with tempfile.TemporaryDirectory(prefix="attune-benchmark-") as folder:
        work = Path(folder)
        logs = arguments.logs or work
        logs.mkdir(parents=True, exist_ok=True)
        model = model_of(arguments, work)
        measured = measure(figure, model, work=work, logs=logs)
    results: dict[str, Any] = {
        "title": figure.title,
        "machine": machine(),
        "settings": {
            "model": model.folder.name,
            "lora_rank": model.lora_rank,
            "reft_rank": model.reft_rank,
            **{name: getattr(figure, name) for name in OVERRIDES},
        },
        "summary": summary(figure, measured["groups"]),
        "failed": measured["failed"],
        "groups": [
            {**group, "runs": {name: _without_answers(run) for name, run in group["runs"].items()}}
            for group in measured["groups"]
        ],
    }
    out = arguments.out or ROOT / f"benchmarks/results/{arguments.figure or 'serving'}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=1) + "\n")
    print(report(results))
    if measured["failed"]:
        sys.exit(f"Ended early, and its figures are missing: {', '.join(measured['failed'])}.")


def _without_answers(run: dict[str, Any]) -> dict[str, Any]:
    """They were compared, and are a number a request."""
    return {name: value for name, value in run.items() if name != "answers"}


if __name__ == "__main__":
    main()
