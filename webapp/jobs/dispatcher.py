"""Which job goes next. Fair between tenants: whoever has the fewest jobs with trainers, then whoever waits longest."""

import uuid
from collections import Counter
from datetime import timedelta

import structlog
from django.db import transaction
from django.db.models import Count

from webapp.config.database import advisory_lock
from webapp.config.faults import Unavailable
from webapp.jobs.broker import send_train
from webapp.jobs.lifecycle import dispatch_undo, job_dispatch
from webapp.jobs.models import Job, Outbox, State
from webapp.jobs.prepare import job_prepare
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
    # Two dispatchers that counted at the same moment would both fill the same room.
    advisory_lock("dispatch")
    idle, chosen = idle_workers(), []
    for base in Job.objects.filter(state=State.DISPATCHED).values_list("base__name", flat=True):
        _expect(idle, base)
    while (next_job := _next(idle)) is not None:
        job, base = next_job
        token = job_dispatch(job=job)
        if token is not None:
            chosen.append((job, base, token))
            _expect(idle, base)
    return chosen


def _expect(idle: list[frozenset[str]], base: str) -> None:
    """One trainer fewer, because a message for this base is on its way: of those that listen, the least versatile."""
    listening = [bases for bases in idle if base in bases]
    if listening:
        idle.remove(min(listening, key=len))


def _next(idle: list[frozenset[str]]) -> tuple[uuid.UUID, str] | None:
    """The queued job, of those whose base an idle trainer has, that fairness gives the next one."""
    bases = frozenset().union(*idle)
    if not bases:
        return None
    busy = Counter(
        dict(
            Job.objects.filter(state__in=(State.DISPATCHED, State.RUNNING))
            .values_list("tenant")
            .annotate(Count("id"))
        )
    )
    # The oldest line of each tenant is enough to decide, however long one tenant's queue is.
    waiting = (
        Outbox.objects.filter(job__state=State.QUEUED, job__base__name__in=bases)
        .order_by("tenant", "id")
        .distinct("tenant")
        .values_list("tenant", "id", "job", "job__base__name")
    )
    chosen = min(waiting, key=lambda row: (busy[row[0]], row[1]), default=None)
    return (chosen[2], chosen[3]) if chosen else None
