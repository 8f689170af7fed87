"""Which job goes next: the one that fairness (fairness.py) gives the next turn, of those that a trainer is free for."""

import uuid
from dataclasses import dataclass, field
from datetime import timedelta

import structlog
from django.db import transaction
from django.db.models import QuerySet

from webapp.config.database import advisory_lock
from webapp.config.faults import Unavailable
from webapp.jobs.broker import send_train
from webapp.jobs.fairness import Turn, choose
from webapp.jobs.lifecycle import dispatch_undo, job_dispatch
from webapp.jobs.models import Job, Outbox, State
from webapp.jobs.prepare import job_prepare
from webapp.jobs.together import fit_together
from webapp.jobs.turns import (
    clock,
    lines_of,
    slot_for_each,
    turn_charge,
    turns_settle,
    unprepared,
    waiting,
)
from webapp.jobs.waiting import job_wait
from webapp.jobs.workers import Idle, idle_workers

_log = structlog.get_logger("attune.dispatch")
_PAUSE = timedelta(seconds=30)


def prepare_all() -> None:
    """validating → queued, in the order of turns. One that cannot be prepared now is set aside.

    Each may take minutes: turns are looked at anew after every job, and nothing else waits for this.
    """
    while (job := unprepared()) is not None:
        try:
            job_prepare(job=job)
        except Exception as error:
            if not isinstance(error, Unavailable):
                _log.exception("prepare", job=job.hex)
            reason = "The files cannot be read at the moment. Trying again."
            job_wait(job=job, state=State.VALIDATING, pause=_PAUSE, reason=reason)


def dispatch_all() -> int:
    """Send as many messages as there are idle trainers that none is on its way to; how many were sent.

    Raises Unavailable when the broker takes none; the jobs are queued again.
    """
    messages = _choose()
    for sent, message in enumerate(messages):
        try:
            send_train(jobs={job.hex: token for job, token in message.jobs.items()}, base=message.base)
        except Unavailable:
            for unsent in messages[sent:]:
                for job in unsent.jobs:
                    dispatch_undo(job=job)
            raise
    return len(messages)


@dataclass
class _Message:
    """To a trainer that takes `most` jobs at once. `jobs`: their tokens."""

    base: str
    most: int
    id: uuid.UUID = field(default_factory=uuid.uuid4)
    jobs: dict[uuid.UUID, str] = field(default_factory=dict)

    def take(self, turn: Turn, now: float) -> None:
        """queued → dispatched, unless it was cancelled meanwhile."""
        token = job_dispatch(job=turn.job.job, dispatch=self.id)
        if token is not None:
            turn_charge(turn, now)
            self.jobs[turn.job.job] = token


@transaction.atomic
def _choose() -> list[_Message]:
    """queued → dispatched for as many as there is room for, to be sent once this is committed."""
    # Two dispatchers that counted at the same moment would both fill the same room, and charge for it twice.
    advisory_lock("dispatch")
    turns_settle()
    idle, messages = idle_workers(), []
    for base in _bases_of_messages():
        _expect(idle, base)
    enough, free = slot_for_each() if idle else False, [*idle]
    while (found := _next(waiting(_bases(idle)), enough)) is not None:
        turn, now = found
        # Whichever of the free trainers is the quickest takes it.
        most = min(worker.most_of(turn.job.base) for worker in free if turn.job.base in worker.bases)
        message = _Message(turn.job.base, most)
        _expect(idle, turn.job.base)
        message.take(turn, now)
        messages.append(message)
    messages = [message for message in messages if message.jobs]
    # One more each, so that they are of one size.
    while sum(_take_along(message) for message in messages):
        pass
    return messages


def _take_along(message: _Message) -> bool:
    """A small job that nobody is free for comes along with one that it can be trained together with."""
    if len(message.jobs) == message.most:
        return False
    alike = fit_together(Job.objects.select_related("base").get(id=next(iter(message.jobs))))
    found = _next(alike, False)
    if found is None:
        return False
    # The clock stands still: others wait for their own turns, and this one takes nobody's.
    message.take(found[0], clock())
    return True


def _bases_of_messages() -> list[str]:
    """Of each message that no trainer has begun to claim."""
    begun = Job.objects.filter(state=State.RUNNING, dispatch__isnull=False).values("dispatch")
    sent = Job.objects.filter(state=State.DISPATCHED).exclude(dispatch__in=begun)
    return [base for _, base in sent.values_list("dispatch", "base__name").distinct()]


def _bases(idle: list[Idle]) -> frozenset[str]:
    return frozenset[str]().union(*(worker.bases for worker in idle))


def _expect(idle: list[Idle], base: str) -> None:
    """One trainer fewer, because a message for this base is on its way: of those that listen, the least versatile."""
    listening = [worker for worker in idle if base in worker.bases]
    if listening:
        idle.remove(min(listening, key=lambda worker: len(worker.bases)))


def _next(lines: QuerySet[Outbox], enough: bool) -> tuple[Turn, float] | None:
    """The next turn among jobs that wait, and the clock after it."""
    # The oldest job of each tenant is enough to decide, however long one tenant's line is.
    oldest = lines.order_by("tenant", "id").distinct("tenant").values("id")
    return choose(lines_of(lines.filter(id__in=oldest)), clock=clock(), slot_for_each=enough)
