"""python -m benchmarks.plots RESULT.json...: throughput and latency against the number of adapters, as in the paper.

Beside each file two pictures: NAME-throughput.png has a panel a mix, a line a kind with its spread over the rounds, and
the base dashed (figure 2); NAME-latency.png encode and decode latency per token, the median with p90 and p99.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.kinds import KINDS

#: kind to (adapters, summary) of each case, by mix.
Panels = dict[str, dict[str, list[tuple[int, dict[str, Any]]]]]


def panels(results: dict[str, Any]) -> tuple[Panels, dict[str, Any] | None]:
    """The cases by profile and mix and then by kind, in order of adapters; and the base's."""
    base = None
    by_mix: Panels = {}
    for name, line in results["summary"]["cases"].items():
        kind, profile, *rest = name.split("/")
        if line is None:
            continue
        if KINDS[kind].method is None:
            base = line if kind == "base" else base
            continue
        mix, adapters, *arrivals = rest
        panel = by_mix.setdefault(", ".join([profile, mix, *arrivals]), {})
        panel.setdefault(kind, []).append((int(adapters), line))
    for kinds in by_mix.values():
        for points in kinds.values():
            points.sort(key=lambda point: point[0])
    return by_mix, base


def plot(file: Path) -> list[Path]:
    """Draw a result's pictures and return their paths. Needs matplotlib."""
    import matplotlib

    matplotlib.use("agg")
    results = json.loads(file.read_text())
    by_mix, base = panels(results)
    if not by_mix:
        raise SystemExit(f"{file}: nothing but the base was measured, and there is nothing to draw.")
    throughput = _picture(
        file.with_name(f"{file.stem}-throughput.png"),
        results["title"],
        "tokens/s",
        {mix: (lambda axes, kinds=kinds: _throughput(axes, kinds, base)) for mix, kinds in by_mix.items()},
    )
    latency = _picture(
        file.with_name(f"{file.stem}-latency.png"),
        f"{results['title']}: p50, p90 and p99",
        "ms a token",
        {
            f"{mix}: {latency.removesuffix('_ms')}": (
                lambda axes, kinds=kinds, latency=latency: _latency(axes, kinds, latency)
            )
            for mix, kinds in by_mix.items()
            for latency in ("encode_ms", "decode_ms")
        },
    )
    return [throughput, latency]


def _picture(path: Path, title: str, unit: str, drawn: dict[str, Callable[[Any], None]]) -> Path:
    from matplotlib import pyplot

    columns = min(4, len(drawn))
    rows = -(-len(drawn) // columns)
    picture, grid = pyplot.subplots(
        rows, columns, figsize=(4.2 * columns, 3.4 * rows), squeeze=False, layout="constrained"
    )
    for axes in grid.flat[len(drawn) :]:
        axes.remove()
    for axes, (name, draw) in zip(grid.flat, drawn.items(), strict=False):
        draw(axes)
        axes.set(title=name, xlabel="adapters", ylabel=unit, ylim=(0, None))
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:.0f}")
    grid[0][0].legend(fontsize="small")
    picture.suptitle(title)
    picture.savefig(path, dpi=150)
    pyplot.close(picture)
    return path


def _throughput(axes: Any, kinds: dict[str, list[tuple[int, dict[str, Any]]]], base: Any) -> None:
    for kind, points in kinds.items():
        numbers = [adapters for adapters, _ in points]
        rounds = [line["throughput"] for _, line in points]
        median = [throughput["median"] for throughput in rounds]
        below = [throughput["median"] - throughput["least"] for throughput in rounds]
        above = [throughput["greatest"] - throughput["median"] for throughput in rounds]
        axes.errorbar(numbers, median, yerr=(below, above), marker="o", capsize=3, label=KINDS[kind].label)
    if base is not None:
        axes.axhline(base["throughput"]["median"], color="grey", linestyle="--", label=KINDS["base"].label)


def _latency(axes: Any, kinds: dict[str, list[tuple[int, dict[str, Any]]]], latency: str) -> None:
    for kind, points in kinds.items():
        known = [(adapters, line[latency]) for adapters, line in points if line[latency] is not None]
        if not known:
            continue
        numbers = [adapters for adapters, _ in known]
        median, p90, p99 = zip(*(values for _, values in known), strict=True)
        drawn = axes.plot(numbers, median, marker="o", label=KINDS[kind].label)[0]
        axes.plot(numbers, p90, linestyle="--", color=drawn.get_color())
        axes.plot(numbers, p99, linestyle=":", color=drawn.get_color())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plots", description=__doc__)
    parser.add_argument("results", type=Path, nargs="+")
    for file in parser.parse_args().results:
        for path in plot(file):
            print(path)


if __name__ == "__main__":
    main()
