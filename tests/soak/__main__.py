"""python -m tests.soak [--kills 50] [--seed 1] [--together 3]: kills, checks, and figures for docs/reliability.md."""

import argparse
import statistics
import sys
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.machine import described, machine
from tests.soak.faults import KINDS, Kill
from tests.soak.run import Outcome, soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1, help="what is killed, in which order and when")
    parser.add_argument("--together", type=int, default=1, help="so many jobs are trained in one batch")
    asked = parser.parse_args()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        progress.console.print(f"seed {asked.seed}")
        bar = progress.add_task("starting", total=asked.kills)

        def told(kill: Kill) -> None:
            progress.update(bar, advance=1, description=f"killed {kill.kind:<10}")
            progress.console.print(
                f"{time.strftime('%H:%M:%S')} killed {kill.kind} at {', '.join(kill.states)}"
            )

        outcome = soak(kills=asked.kills, seed=asked.seed, told=told, together=asked.together)
    print(report(outcome, seed=asked.seed))
    for problem in outcome.problems:
        print(f"PROBLEM: {problem}", file=sys.stderr)
    return 1 if outcome.problems else 0


def report(outcome: Outcome, *, seed: int) -> str:
    """Markdown, as docs/reliability.md has it."""
    lines = [
        f"{described(machine())}; seed {seed}: {len(outcome.kills)} kills in {outcome.seconds / 60:.0f} minutes, "
        f"{outcome.jobs} jobs, {outcome.lapses} lapsed leases, {len(outcome.problems)} problems.",
        "",
        "| killed | times |",
        "|---|---|",
        *(f"| {kind} | {sum(kill.kind == kind for kill in outcome.kills)} |" for kind in KINDS),
        "",
        "| of a job that lost its trainer | median | greatest |",
        "|---|---|---|",
    ]
    rows = {
        "seconds until its lease had lapsed": [cost.noticed for cost in outcome.costs],
        "seconds until another attempt began": [cost.again for cost in outcome.costs],
        "steps done twice": [cost.steps for cost in outcome.costs],
    }
    lines += [
        f"| {name} | {statistics.median(values):.0f} | {max(values):.0f} |"
        for name, values in rows.items()
        if values
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
