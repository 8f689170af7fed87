"""Jobs that cannot move on now are set aside, so that one of them never keeps the others waiting."""

import uuid
from datetime import timedelta

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from webapp.jobs.events import event_add
from webapp.jobs.locks import job_locked
from webapp.jobs.models import Job, State


def due(state: State) -> list[uuid.UUID]:
    """The jobs in a state that are not set aside, oldest first."""
    ready = Q(wait_until=None) | Q(wait_until__lte=Now())
    return list(Job.objects.filter(ready, state=state).order_by("created_at").values_list("id", flat=True))


@transaction.atomic
def job_wait(*, job: uuid.UUID, state: State, pause: timedelta, reason: str) -> None:
    """The job stays in `state` and is not `due` for a while. Its history says why, once for each reason."""
    row = job_locked(job)
    if row.state != state:
        return
    Job.objects.filter(id=row.id).update(wait_until=Now() + pause)
    last = row.events.order_by("-id").first()
    if last is None or last.message != reason:
        event_add(job=row, message=reason, level="warn")
