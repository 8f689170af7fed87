"""Measure a figure: its engines up together, its groups of cases one after the other, round after round."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adapters_store.names import Method, Position
from benchmarks.figures import Figure
from benchmarks.kinds import KINDS, Capacity, capacity_of, options_of
from benchmarks.random_adapters import random_adapter
from benchmarks.rounds import in_slices, run_group
from benchmarks.workers import Engines, launch, say
from inference.adapter_checks import ServedBase, served_base
from inference.serve import engine_options

#: inference.serve's default.
_MOST_SEQUENCES = 32


@dataclass(frozen=True)
class Model:
    """The base model's folder, the adapters' ranks, options of vLLM that the folder needs, and random_adapter's."""

    folder: Path
    lora_rank: int
    reft_rank: int
    options: dict[str, Any] = field(default_factory=dict)
    lora_up: float = 0.02


def measure(figure: Figure, model: Model, *, work: Path, logs: Path) -> dict[str, Any]:
    """{"groups": an entry for each group in each round, "failed": engine to reason}.

    An entry is {"round" (from 1), "in_slices", "runs": a case's name to its measures}. An engine that ends costs the
    cases that it serves; the others are measured. Interrupted (SIGINT), what was measured until then is returned.
    """
    rank = max(model.lora_rank, model.reft_rank)
    capacity = capacity_of(
        adapters=figure.adapters,
        batch=figure.batch,
        gpu_slots=figure.gpu_slots,
        cpu_slots=figure.cpu_slots,
        rank=rank,
    )
    say(f"making {figure.adapters} random adapters a kind")
    folders = _folders(figure, model, work)
    options = _options(figure, model, capacity)
    engines = Engines()
    groups: list[dict[str, Any]] = []
    try:
        say(f"starting {len(figure.engines)} engines: {', '.join(figure.engines)}; this takes minutes")
        for engine in figure.engines:
            engines.up[engine] = launch(
                engine,
                options=options[engine],
                folders={kind: made for kind, made in folders.items() if KINDS[kind].engine == engine},
                batch=figure.batch,
                logs=logs,
            )
        for engine in figure.engines:
            with engines.losses(engine):
                engines.up[engine].wait_ready()
                say(f"{engine} is up and warm")
        for number in range(figure.rounds):
            for group in figure.groups:
                runs: dict[str, dict[str, Any]] = {}
                # Before it is measured: what an interrupted group has is reported.
                groups.append({"round": number + 1, "in_slices": in_slices(group), "runs": runs})
                run_group(engines, group, figure, number, runs)
    except KeyboardInterrupt:
        engines.failed["benchmark"] = "interrupted"
    finally:
        for worker in engines.up.values():
            worker.stop()
    return {"groups": groups, "failed": engines.failed}


def _folders(figure: Figure, model: Model, work: Path) -> dict[str, list[tuple[str, str]]]:
    """Each kind's adapters: serving names and paths. Kinds of one method and position share them."""
    base = served_base(model.folder, max_rank=max(model.lora_rank, model.reft_rank))
    made: dict[tuple[Method, Position], list[tuple[str, str]]] = {}
    folders = {}
    for name in dict.fromkeys(case.kind for case in figure.cases):
        kind = KINDS[name]
        if kind.method is None:
            continue
        key = (kind.method, kind.position)
        if key not in made:
            made[key] = [_adapter(work, base, *key, model, seed) for seed in range(figure.adapters)]
        folders[name] = made[key]
    return folders


def _adapter(
    work: Path, base: ServedBase, method: Method, position: Position, model: Model, seed: int
) -> tuple[str, str]:
    folder = work / f"{method}-{position}-{seed}"
    manifest = random_adapter(
        folder,
        base=base,
        method=method,
        position=position,
        rank=model.lora_rank if method == "lora" else model.reft_rank,
        seed=seed,
        lora_up=model.lora_up,
    )
    return manifest.name, str(folder)


def _options(figure: Figure, model: Model, capacity: Capacity) -> dict[str, dict[str, Any]]:
    ours = engine_options(
        base_folder=model.folder,
        gpu_slots=capacity.gpu_slots,
        cpu_slots=capacity.cpu_slots,
        max_rank=capacity.max_rank,
        max_model_len=2048,
        max_num_seqs=max(figure.batch, _MOST_SEQUENCES),
    )
    from inference import plugin

    on_cpu = plugin.on_cpu()
    return {
        engine: {**options_of(engine, ours, capacity, on_cpu=on_cpu), **model.options}
        for engine in figure.engines
    }
