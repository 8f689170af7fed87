"""Who goes next: start-time fair queueing between tenants, with a trainer for each where there are enough.

A pure function of what waits. Every job has a start tag in a virtual time that each tenant spends at the rate
work/weight (Goyal, Vin and Cheng, Start-time Fair Queuing, 1996), and the lowest tag goes next. So tenants that want
more than there is get work in proportion to their weights, whatever they queue; nobody waits for ever, since each turn
moves its tenant's tags on; and a tenant that was away starts at the clock, with neither debts nor savings.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True)
class Waiting:
    """A job in line. `since` orders a tenant's jobs, and breaks ties; `work`: what a turn costs, see `turns.py`."""

    job: UUID
    base: str
    since: int
    work: float


@dataclass(frozen=True)
class Line:
    """A tenant that has jobs waiting (oldest first) or training.

    `cap`: so many may have trainers at once. `served`: where the tenant is in virtual time.
    """

    tenant: UUID
    weight: int
    cap: int
    running: int
    served: float
    jobs: Sequence[Waiting]


@dataclass(frozen=True)
class Turn:
    """A job's place: its tags in virtual time (start; finish = start + work/weight)."""

    line: Line
    job: Waiting
    start: float
    finish: float


def order(lines: Iterable[Line], *, clock: float, slot_for_each: bool) -> list[Turn]:
    """All waiting jobs, the next one first, if nothing but turns happened. Caps are not looked at (`choose` does).

    With `slot_for_each` (there are trainers enough) a tenant that has none goes before those that have one.
    """
    ranked = []
    for line in lines:
        tag = max(clock, line.served)
        for trainers, job in enumerate(line.jobs, start=line.running):
            turn = Turn(line, job, tag, tag + job.work / line.weight)
            behind = slot_for_each and trainers > 0
            ranked.append(((behind, turn.start, trainers / line.weight, job.since), turn))
            tag = turn.finish
    return [turn for _, turn in sorted(ranked, key=lambda each: each[0])]


def choose(lines: Iterable[Line], *, clock: float, slot_for_each: bool) -> tuple[Turn, float] | None:
    """The turn that is next within the caps, and the clock after it; None if nobody may go.

    The clock is the lowest start tag of those that could have gone: nobody who waits falls behind it but by a cap.
    """
    may = [line for line in lines if line.jobs and line.running < line.cap]
    turns = order(may, clock=clock, slot_for_each=slot_for_each)
    return (turns[0], min(turn.start for turn in turns)) if turns else None
