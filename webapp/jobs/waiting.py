"""Jobs that cannot move on now are set aside, so that one of them never keeps the others waiting."""

import uuid
from datetime import timedelta

from django.db import transaction
from django.db.models import OuterRef, Q, Subquery
from django.db.models.functions import Now

from webapp.jobs.events import event_add
from webapp.jobs.locks import job_locked
from webapp.jobs.models import Job, JobEvent, State


def ready(*, of: str = "") -> Q:
    """Of jobs that are not set aside; `of`: the way from the rows that are asked for to their jobs ("job__")."""
    return Q(**{f"{of}wait_until": None}) | Q(**{f"{of}wait_until__lte": Now()})


@transaction.atomic
def job_wait(*, job: uuid.UUID, state: State, pause: timedelta, reason: str) -> None:
    """The job stays in `state` and is not `ready` for a while. Its history says why, once for each reason."""
    row = job_locked(job)
    if row.state != state:
        return
    Job.objects.filter(id=row.id).update(wait_until=Now() + pause)
    last = row.events.order_by("-id").first()
    if last is None or last.message != reason:
        event_add(job=row, message=reason, level="warn")


def all_told(*, state: State, reason: str) -> None:
    """Every job in `state` says in its history why none of them moves, once; they stay as `ready` as they were."""
    last = JobEvent.objects.filter(job=OuterRef("id")).order_by("-id").values("message")[:1]
    untold = Job.objects.filter(state=state).alias(last=Subquery(last)).exclude(last=reason)
    for job in untold.values_list("id", flat=True):
        with transaction.atomic():
            row = job_locked(job)
            if row.state == state:
                event_add(job=row, message=reason, level="warn")
