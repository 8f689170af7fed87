"""One round of a group of cases: on the same requests, and in slices of a second where each has an engine of its own.

While one engine works the others stand still, and their clocks with them; then the next one works. A machine's moods
last longer than that, so they meet all runs of the group, and ratios within it are free of them. When the shorter runs
have ended, the longer ones go on alone.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

from benchmarks.figures import Case, Figure
from benchmarks.kinds import KINDS
from benchmarks.measures import measures
from benchmarks.workers import EngineEnded, Engines, Worker, say
from benchmarks.workload import Request, requests_of

#: How long an engine works before the next one does; the step that it is in is finished.
SLICE_SECONDS = 1.0


def in_slices(group: Sequence[Case]) -> bool:
    """Whether the group's runs advance together. One engine has one run at a time, and adapters are read from disk even
    while an engine stands still."""
    engines = {KINDS[case.kind].engine for case in group}
    return 1 < len(group) == len(engines) and not any(case.arrivals for case in group)


def run_group(
    engines: Engines, group: Sequence[Case], figure: Figure, number: int, runs: dict[str, dict[str, Any]]
) -> None:
    """Fill `runs` with each case's measures by its name, as its run ends. Cases whose engine has ended are left out."""
    if in_slices(group):
        _advance(engines, order(group, number), figure, number, runs, seconds=SLICE_SECONDS)
    else:
        for case in order(group, number):
            _advance(engines, [case], figure, number, runs)


def order(group: Sequence[Case], number: int) -> Sequence[Case]:
    """Every other round backwards, so that nobody is always the first. What is cold has to come before what is then
    warm."""
    return group if number % 2 == 0 or any(case.arrivals for case in group) else group[::-1]


def _advance(
    engines: Engines,
    cases: Sequence[Case],
    figure: Figure,
    number: int,
    runs: dict[str, dict[str, Any]],
    seconds: float = math.inf,
) -> None:
    """Each case has an engine of its own; `seconds` is how long it works before the next one does."""
    begun: deque[tuple[Case, Worker, int]] = deque()
    for case in cases:
        engine = KINDS[case.kind].engine
        if engine in engines.up:
            requests, arrivals = requests_for(case, figure, number)
            with engines.losses(engine):
                engines.up[engine].begin(case.kind, requests, arrivals)
                begun.append((case, engines.up[engine], len(arrivals) if case.arrivals == "cold" else 0))
    while begun:
        case, worker, cold = begun.popleft()
        with engines.losses(worker.engine):
            run = worker.advance(seconds)
            if run is None:
                begun.append((case, worker, cold))
                continue
            if run["read"] != cold:
                raise EngineEnded(
                    f"{case.name}: {run['read']} adapters were read from disk where {cold} should have been."
                )
            result = runs[case.name] = measures(run)
            say(
                f"round {number + 1}: {case.name}: {result['throughput']:.0f} tokens/s, {result['seconds']:.0f} s"
            )


def requests_for(case: Case, figure: Figure, number: int) -> tuple[list[Request], list[Request]]:
    """A round's requests, and those that arrive beside them.

    With arrivals, the requests are streams of the base, all of them as long as may be, and one half of the adapters
    arrives in even rounds, the other in odd ones: where half fits into memory, they are not there.
    """
    requests = requests_of(
        profile=case.profile,
        mix=case.mix,
        count=figure.requests,
        adapters=case.adapters,
        max_tokens=figure.max_tokens,
        seed=number,
    )
    if not case.arrivals:
        return requests, []
    streams = [
        Request(request.prompt[:32], figure.max_tokens - len(request.prompt[:32]), -1) for request in requests
    ]
    if case.arrivals == "none":
        return streams, []
    half = case.adapters // 2
    prompts = requests_of(
        profile=case.profile, mix="identical", count=half, adapters=1, max_tokens=64, seed=1_000 + number
    )
    first = number % 2 * half
    return streams, [Request(request.prompt, 1, first + index) for index, request in enumerate(prompts)]
