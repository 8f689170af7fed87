"""Which job goes next: the one that fairness (fairness.py) gives the next turn, of those that a trainer is free for."""

import uuid
from datetime import timedelta

import structlog
from django.db import transaction

from webapp.config.database import advisory_lock
from webapp.config.faults import Unavailable
from webapp.jobs.broker import send_train
from webapp.jobs.fairness import Turn, choose
from webapp.jobs.lifecycle import dispatch_undo, job_dispatch
from webapp.jobs.models import Job, State
from webapp.jobs.prepare import job_prepare
from webapp.jobs.turns import clock, lines_of, slot_for_each, turn_charge, turns_settle, waiting
from webapp.jobs.waiting import due, job_wait
from webapp.jobs.workers import idle_workers

_log = structlog.get_logger("attune.dispatch")
_BATCH = 20
_PAUSE = timedelta(seconds=30)


def prepare_all() -> None:
    """validating → queued, oldest first. One that cannot be prepared now is set aside.

    The round ends with it: storage that hangs must not hold up the rest of the dispatcher, and the next round, half a
    second later, begins behind that job.
    """
    for job in due(State.VALIDATING)[:_BATCH]:
        try:
            job_prepare(job=job)
        except Exception as error:
            if not isinstance(error, Unavailable):
                _log.exception("prepare", job=job.hex)
            reason = "The files cannot be read at the moment. Trying again."
            return job_wait(job=job, state=State.VALIDATING, pause=_PAUSE, reason=reason)


def dispatch_all() -> int:
    """Send as many messages as there are idle trainers that none is on its way to; how many were sent.

    Raises Unavailable when the broker takes none; the jobs are queued again.
    """
    chosen = _choose()
    for sent, (job, base, token) in enumerate(chosen):
        try:
            send_train(job=job.hex, base=base, dispatch_token=token)
        except Unavailable:
            for unsent, _, _ in chosen[sent:]:
                dispatch_undo(job=unsent)
            raise
    return len(chosen)


@transaction.atomic
def _choose() -> list[tuple[uuid.UUID, str, str]]:
    """queued → dispatched for as many as there is room for: job, base and token, to be sent once this is committed."""
    # Two dispatchers that counted at the same moment would both fill the same room, and charge for it twice.
    advisory_lock("dispatch")
    turns_settle()
    idle, chosen = idle_workers(), []
    for base in Job.objects.filter(state=State.DISPATCHED).values_list("base__name", flat=True):
        _expect(idle, base)
    enough = slot_for_each() if idle else False
    while (found := _next(idle, enough)) is not None:
        turn, now = found
        token = job_dispatch(job=turn.job.job)
        if token is not None:
            turn_charge(turn, now)
            chosen.append((turn.job.job, turn.job.base, token))
            _expect(idle, turn.job.base)
    return chosen


def _expect(idle: list[frozenset[str]], base: str) -> None:
    """One trainer fewer, because a message for this base is on its way: of those that listen, the least versatile."""
    listening = [bases for bases in idle if base in bases]
    if listening:
        idle.remove(min(listening, key=len))


def _next(idle: list[frozenset[str]], enough: bool) -> tuple[Turn, float] | None:
    """The next turn among the jobs whose base an idle trainer has, and the clock after it."""
    bases = frozenset().union(*idle)
    if not bases:
        return None
    # The oldest job of each tenant is enough to decide, however long one tenant's line is.
    oldest = waiting(bases).order_by("tenant", "id").distinct("tenant").values("id")
    return choose(lines_of(waiting(bases).filter(id__in=oldest)), clock=clock(), slot_for_each=enough)
