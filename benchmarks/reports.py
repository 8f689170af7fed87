"""A figure's results as people read them: a table of its cases, and its targets beside what was measured."""

import statistics
from typing import Any

from benchmarks.figures import Case, Figure, Target
from benchmarks.kinds import KINDS
from benchmarks.machine import described
from benchmarks.measures import paired, spread


def summary(figure: Figure, groups: list[dict[str, Any]]) -> dict[str, Any]:
    """For the JSON: each case's medians and ratios, and each target's; what did not run is None."""
    return {
        "cases": {case.name: _case(case, groups) for case in figure.cases},
        "targets": [_target(target, groups) for target in figure.targets],
    }


def _case(case: Case, groups: list[dict[str, Any]]) -> dict[str, Any] | None:
    runs = [group["runs"][case.name] for group in groups if case.name in group["runs"]]
    if not runs:
        return None
    line: dict[str, Any] = {"runs": len(runs)}
    line["throughput"] = spread([run["throughput"] for run in runs])
    for latency in ("encode_ms", "decode_ms"):
        known = [run[latency] for run in runs if run[latency] is not None]
        line[latency] = [statistics.median(column) for column in zip(*known, strict=True)] or None
    for name, other in (("of_base", _base_of(case)), ("of_stock", _stock_of(case))):
        values = paired(groups, case.name, other.name, "throughput")
        line[name] = spread(values) if values and other != case else None
    return line


def _base_of(case: Case) -> Case:
    return Case("base", case.profile)


def _stock_of(case: Case) -> Case:
    return Case("lora_stock", case.profile, case.mix, case.adapters)


def _target(target: Target, groups: list[dict[str, Any]]) -> dict[str, Any]:
    values = paired(groups, target.of.name, target.to.name, target.measure)
    line: dict[str, Any] = {
        "row": target.row,
        "measure": target.measure,
        "at_least": target.at_least,
        "at_most": target.at_most,
        "measured": spread(values) if values else None,
    }
    if values and (target.at_least, target.at_most) != (None, None):
        median = line["measured"]["median"]
        line["reached"] = median >= (target.at_least or 0) and median <= (target.at_most or median)
    return line


def report(results: dict[str, Any]) -> str:
    """Markdown, as docs/benchmarks.md has it; `results` is what serving.py writes as JSON."""
    settings = results["settings"]
    head = (
        f"{results['title']}. {described(results['machine'])}; vLLM {results['machine']['vllm']}; "
        f"{settings['model']}; LoRA of rank {settings['lora_rank']}, DiReFT of rank {settings['reft_rank']}; "
        f"batch {settings['batch']}; {settings['requests']} requests a round, each of at most "
        f"{settings['max_tokens']} tokens; {settings['gpu_slots']} slots."
    )
    parts = [head, _case_table(results["summary"]["cases"])]
    if results["summary"]["targets"]:
        parts.append(_target_table(results["summary"]["targets"]))
    parts += [f"**{engine} failed:** {why.splitlines()[0]}" for engine, why in results["failed"].items()]
    return "\n\n".join(parts)


def _case_table(cases: dict[str, dict[str, Any] | None]) -> str:
    lines = [
        "| kind, profile, mix, adapters | tokens/s | of base | of stock LoRA | encode ms a token, p50/p90/p99 "
        "| decode ms a token, p50/p90/p99 | runs |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, line in cases.items():
        kind, *workload = name.split("/")
        label = ", ".join([KINDS[kind].label, *workload])
        if line is None:
            lines.append(f"| {label} | not measured | | | | | 0 |")
            continue
        lines.append(
            f"| {label} | {line['throughput']['median']:.0f} "
            f"| {_spread(line['of_base'])} | {_spread(line['of_stock'])} "
            f"| {_latency(line['encode_ms'])} | {_latency(line['decode_ms'])} | {line['runs']} |"
        )
    return "\n".join(lines)


def _target_table(targets: list[dict[str, Any]]) -> str:
    lines = ["| ratio of runs of one round | measured (spread) | target | reached |", "|---|---|---|---|"]
    for line in targets:
        bounds = [
            f"{name.replace('_', ' ')} {line[name]}"
            for name in ("at_least", "at_most")
            if line[name] is not None
        ]
        reached = {True: "yes", False: "no", None: ""}[line.get("reached")]
        lines.append(
            f"| {line['row']} | {_spread(line['measured']) or 'not measured'} "
            f"| {', '.join(bounds)} | {reached} |"
        )
    return "\n".join(lines)


def _spread(values: dict[str, float] | None) -> str:
    if values is None:
        return ""
    return f"{values['median']:.2f} ({values['least']:.2f} to {values['greatest']:.2f})"


def _latency(values: list[float] | None) -> str:
    return "" if values is None else "/".join(f"{value:.3g}" for value in values)
