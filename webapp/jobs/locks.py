"""The only way to change a job: hold its row."""

import uuid
from datetime import timedelta

from django.db.models import QuerySet

from training_jobs.messages import JobState
from webapp.config.faults import Fenced, NotFound
from webapp.jobs.models import Job
from webapp.jobs.tokens import matches

LEASE = timedelta(seconds=30)
#: A lease is good for so much longer while no trainer at all is heard: that is no fault of the one that has it.
UNHEARD = timedelta(minutes=5)
UNCLAIMED = timedelta(seconds=60)
MAX_ATTEMPTS = 3
#: How long a trainer may take to begin reading what it was told to.
GET_SECONDS = 3600


def locked(jobs: QuerySet[Job] | None = None) -> QuerySet[Job]:
    """Rows to lock, alone: files, tenants and end users stay free for others."""
    return (
        (Job.objects.all() if jobs is None else jobs)
        .select_for_update(of=("self",))
        .select_related("tenant", "end_user", "base", "training_file", "validation_file")
    )


def job_locked(job: uuid.UUID) -> Job:
    """Within a transaction; raises NotFound."""
    found = locked().filter(id=job).first()
    if found is None:
        raise NotFound("There is no such job.", code="unknown_job")
    return found


def job_held(job: uuid.UUID, *, token: str, epoch: int) -> Job:
    """The job, locked, for the worker that holds this epoch; raises NotFound, Fenced."""
    found = job_locked(job)
    if found.epoch != epoch or not matches(token, found.token):
        raise fenced()
    return found


def fenced() -> Fenced:
    return Fenced("Another attempt has this job now. Leave it: nothing you send will be kept.", code="fenced")


def state_of(job: Job) -> JobState:
    state: JobState = job.state
    return state
