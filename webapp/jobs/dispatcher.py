"""Which job goes next. Fair between tenants: whoever has the fewest jobs with trainers, then whoever waits longest."""

import uuid
from collections import Counter
from datetime import timedelta

import structlog
from django.db.models import Count

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
    """Send as many messages as there are idle trainers that none is on its way to; how many were sent."""
    room = idle_workers() - _unclaimed()
    sent = 0
    while (next_job := _next(room)) is not None:
        job, base = next_job
        token = job_dispatch(job=job)
        if token is not None:
            try:
                send_train(job=job.hex, base=base, dispatch_token=token)
            except Unavailable:
                dispatch_undo(job=job)
                raise
            sent += 1
        room[base] -= 1
    return sent


def _unclaimed() -> Counter[str]:
    rows = Job.objects.filter(state=State.DISPATCHED).values_list("base__name").annotate(Count("id"))
    return Counter(dict(rows))


def _next(room: Counter[str]) -> tuple[uuid.UUID, str] | None:
    """The queued job, of those whose base has room, that fairness gives the next trainer."""
    bases = [base for base, count in room.items() if count > 0]
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
