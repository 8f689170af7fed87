"""Why a job does not move, and its place in line: said to its owner, in numbers and words that tell of no other job."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from django.db.models.functions import Now

from webapp.jobs.fairness import order
from webapp.jobs.models import Job, JobEvent, State
from webapp.jobs.turns import clock, lines_of, running_jobs, slot_for_each, waiting
from webapp.jobs.workers import idle_workers, workers_alive

#: files: they cannot be read now. no_trainer: none has the base model. plan_cap: the plan's jobs are all training.
#: trainers_busy: others are being trained. starting: a trainer is told, or will be in a moment. engine: the trained
#: adapter cannot be tried now. fault: the last attempt met one that passes, and the next comes after a pause.
Reason = Literal["files", "no_trainer", "plan_cap", "trainers_busy", "starting", "engine", "fault"]


@dataclass(frozen=True)
class Delay:
    """`position`: of a queued job, 1 for the one that is next on the trainers that have its base model."""

    reason: Reason
    message: str
    position: int | None = None


def delays_of(jobs: Iterable[Job]) -> dict[UUID, Delay]:
    """Those of `jobs` that wait for something. `jobs` with their tenants' plans and bases selected."""
    jobs = list(jobs)
    queue = _Queue() if any(job.state == State.QUEUED for job in jobs) else None
    found = {}
    for job in jobs:
        delay = queue.delay(job) if queue and job.state == State.QUEUED else _outside_the_queue(job)
        if delay is not None:
            found[job.id] = delay
    return found


def _outside_the_queue(job: Job) -> Delay | None:
    if job.state == State.DISPATCHED:
        return Delay("starting", "A trainer is told, and starts in a moment.")
    if job.state not in (State.VALIDATING, State.GATING):
        return None
    # What goes as it should writes no warning: the last event is one while the job is set aside.
    last = JobEvent.objects.filter(job=job).order_by("-id").first()
    if last is None or last.level != "warn":
        return None
    return Delay("files" if job.state == State.VALIDATING else "engine", last.message)


class _Queue:
    """The queue at one moment; what many jobs need of it is read once."""

    def __init__(self) -> None:
        self.trainers = [frozenset(bases) for bases in workers_alive().values_list("bases", flat=True)]
        self.idle = idle_workers()
        self.running = running_jobs()
        aside = Job.objects.filter(state=State.QUEUED, wait_until__gt=Now())
        self.aside = {*aside.values_list("id", flat=True)}
        self.places: dict[frozenset[str], dict[UUID, int]] = {}

    def delay(self, job: Job) -> Delay:
        base, plan = job.base.name, job.tenant.plan
        #: All that the trainers of this base can train: these jobs wait for the same trainers.
        bases = frozenset[str]().union(*(each for each in self.trainers if base in each))
        if not bases:
            return Delay(
                "no_trainer",
                f"No trainer of {base} is running at the moment. The job starts by itself when there is one.",
                self._position(job, frozenset({base})),
            )
        if job.id in self.aside:
            last = JobEvent.objects.filter(job=job).order_by("-id").values_list("message", flat=True).first()
            return Delay("fault", last or "")
        position = self._position(job, bases)
        if self.running[job.tenant_id] >= plan.running_jobs:
            most = "one job" if plan.running_jobs == 1 else f"{plan.running_jobs} jobs"
            return Delay(
                "plan_cap",
                f"Your plan trains {most} at a time. This one starts when another of yours has ended.",
                position,
            )
        if position is not None and position <= sum(base in each.bases for each in self.idle):
            return Delay("starting", "A trainer is free, and starts in a moment.", position)
        return Delay(
            "trainers_busy", "All trainers are busy. The job starts by itself in its turn.", position
        )

    def _position(self, job: Job, bases: frozenset[str]) -> int | None:
        if bases not in self.places:
            turns = order(lines_of(waiting(bases)), clock=clock(), slot_for_each=slot_for_each())
            self.places[bases] = {turn.job.job: place for place, turn in enumerate(turns, start=1)}
        # None: a trainer took it since the row was read.
        return self.places[bases].get(job.id)
