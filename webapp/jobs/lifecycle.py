"""What people and the dispatcher do to a job: prepare, dispatch, cancel, pause, resume, and give up on a worker.

Each function is one transition of the table in ARCHITECTURE.md ("The job protocol"), under the row's lock.
"""

import uuid
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import structlog
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from adapters_store.manifest import Manifest
from adapters_store.s3 import manifest_key, object_key
from training_jobs.messages import UNKNOWN_FAULT
from webapp.config.faults import BadRequest
from webapp.datasets.storage import object_drop, upload_drop
from webapp.jobs.events import event_add
from webapp.jobs.locks import LEASE, MAX_ATTEMPTS, UNCLAIMED, UNHEARD, job_locked, locked
from webapp.jobs.models import TERMINAL, Job, JobUpload, Outbox, State
from webapp.jobs.tokens import dispatch_token_new

_log = structlog.get_logger("attune.jobs")
#: How a job fails whose last attempt ended without a fault that is known: its trainer died, or does not know why.
QUARANTINED = "quarantined"
#: After an attempt that met a fault which may pass, the first time; four times as long the next.
FAULT_PAUSE = timedelta(seconds=30)
#: While storage or the web application is away a job waits as long again as it has waited, within these, and in all so
#: long.
AWAY_LEAST, AWAY_MOST, AWAY_IN_ALL = timedelta(seconds=5), timedelta(minutes=10), timedelta(days=1)


def job_to(job: Job, state: State, **changes: object) -> None:
    """Write a transition of a locked row, and say so in the log."""
    _log.info("job", job=job.public_id, state_before=job.state, state=state, epoch=job.epoch)
    job.state = state
    Job.objects.filter(id=job.id).update(state=state, **changes)


@transaction.atomic
def job_queue(
    *,
    job: uuid.UUID,
    conversations_sha256: str,
    conversations_size: int,
    held_out: dict[str, Any],
    told: Iterable[tuple[str, str]],
) -> None:
    """validating → queued: what is trained on is ready, and what it is judged by (`held_out`).

    `told`: level and sentence of what its owner should know of the files.
    """
    row = job_locked(job)
    if row.state == State.VALIDATING:
        job_to(
            row,
            State.QUEUED,
            conversations_sha256=conversations_sha256,
            conversations_size=conversations_size,
            held_out=held_out,
        )
        for level, message in told:
            event_add(job=row, message=message, level=level)
        event_add(job=row, message="Files validated; waiting for a trainer.")


@transaction.atomic
def job_dispatch(*, job: uuid.UUID, dispatch: uuid.UUID) -> str | None:
    """queued → dispatched; its token in the message `dispatch`, or None if the job is no longer queued."""
    row = job_locked(job)
    if row.state != State.QUEUED:
        return None
    token, stored = dispatch_token_new()
    job_to(row, State.DISPATCHED, dispatch_token=stored, dispatched_at=Now(), dispatch=dispatch)
    return token


@transaction.atomic
def dispatch_undo(*, job: uuid.UUID) -> None:
    """dispatched → queued, when the broker took no message."""
    row = job_locked(job)
    if row.state == State.DISPATCHED:
        job_to(row, State.QUEUED, dispatch_token="", dispatched_at=None)


@transaction.atomic
def job_cancel(*, job: Job) -> Job:
    """Any state but a terminal one → cancelled, at once. Idempotent; raises BadRequest if it ended otherwise."""
    row = job_locked(job.id)
    if row.state == State.CANCELLED:
        return row
    if row.state in TERMINAL:
        raise BadRequest(
            f"This job has already {row.state}; only an unfinished one can be cancelled.", code="job_ended"
        )
    job_end(row, State.CANCELLED, message="Cancelled.")
    return row


@transaction.atomic
def job_pause(*, job: Job) -> Job:
    """queued, dispatched or running → paused; a worker checkpoints at its next heartbeat and leaves."""
    row = job_locked(job.id)
    if row.state == State.PAUSED:
        return row
    if row.state not in (State.QUEUED, State.DISPATCHED, State.RUNNING):
        raise BadRequest(
            f"A job that is {row.state} cannot be paused; one that waits or trains can.", code="not_pausable"
        )
    Outbox.objects.filter(job=row).delete()
    # The token stays: the worker may still register its last checkpoint.
    job_to(row, State.PAUSED, dispatch_token="", dispatched_at=None, lease_until=None)
    event_add(job=row, message="Paused.")
    return row


@transaction.atomic
def job_resume(*, job: Job) -> Job:
    """paused → queued, from the last checkpoint."""
    row = job_locked(job.id)
    if row.state in (State.QUEUED, State.DISPATCHED, State.RUNNING):
        return row
    if row.state != State.PAUSED:
        raise BadRequest(f"A job that is {row.state} cannot be resumed; a paused one can.", code="not_paused")
    job_requeue(row, message="Resumed.")
    return row


@transaction.atomic
def dispatch_lapse() -> int:
    """dispatched → queued for each message that nobody claimed in time: the broker may have lost it."""
    late = locked(Job.objects.filter(state=State.DISPATCHED, dispatched_at__lt=Now() - UNCLAIMED))
    count = 0
    for row in late.select_for_update(of=("self",), skip_locked=True):
        job_requeue(row, message="No trainer took the job in time; sending it again.", level="warn")
        count += 1
    return count


@transaction.atomic
def lease_lapse(*, heard: bool) -> int:
    """running → queued for each worker that fell silent; the third time → failed (quarantined).

    `heard`: whether trainers can be heard now (hearing.py). If not, they are given time to come back to their jobs.
    """
    until = Now() if heard else Now() - UNHEARD
    late = locked(Job.objects.filter(state=State.RUNNING, lease_until__lt=until))
    count = 0
    for row in late.select_for_update(of=("self",), skip_locked=True):
        attempt_failed(row, why=f"The trainer fell silent for {LEASE.seconds} seconds.")
        count += 1
    return count


def attempt_failed(row: Job, *, why: str, code: str = QUARANTINED, pause: timedelta | None = None) -> None:
    """A locked row whose attempt ended badly: another one from the last checkpoint, or after the third the end.

    `code` of the fault that ended it, with which the job fails then. `pause`: how long it is set aside before.
    """
    row.failed_attempts += 1
    Job.objects.filter(id=row.id).update(failed_attempts=F("failed_attempts") + 1)
    if row.failed_attempts < MAX_ATTEMPTS:
        job_requeue(row, message=f"{why} Trying again from the last checkpoint.", level="warn", pause=pause)
    elif code == QUARANTINED:
        job_fail_with(
            row,
            code=code,
            message=f"Training was tried {MAX_ATTEMPTS} times and never finished. The last time: {why} "
            "Start the job again; if it ends so again, the operator finds the reason in the trainer's log.",
        )
    else:
        job_fail_with(row, code=code, message=f"{why} It was tried {MAX_ATTEMPTS} times.")


def attempt_faulted(row: Job, *, why: str, code: str) -> None:
    """A locked row whose attempt met a fault that may pass: the next one comes after a pause."""
    known = QUARANTINED if code == UNKNOWN_FAULT else code
    attempt_failed(row, why=why, code=known, pause=FAULT_PAUSE * 4**row.failed_attempts)


def attempt_void(row: Job, *, why: str, code: str) -> None:
    """A locked row whose attempt ended because storage or the web application was away, and so counts for nothing.

    It is set aside, longer each time; in the end, since it was so for a day, it fails with the fault's own code.
    """
    if row.away >= AWAY_IN_ALL:
        job_fail_with(row, code=code, message=f"{why} It was so for a day: start the job again.")
        return
    pause = min(max(row.away, AWAY_LEAST), AWAY_MOST)
    Job.objects.filter(id=row.id).update(away=row.away + pause)
    message = f"{why} Trying again from the last checkpoint, in {pause.seconds} seconds."
    job_requeue(row, message=message, level="warn", pause=pause)


def job_requeue(row: Job, *, message: str, level: str = "info", pause: timedelta | None = None) -> None:
    """A locked row → queued, set aside for `pause`. No token is good any more; the next claim begins the next epoch."""
    changes = {"dispatch_token": "", "token": "", "worker": None, "dispatched_at": None, "lease_until": None}
    job_to(row, State.QUEUED, **changes, wait_until=pause and Now() + pause)
    Outbox.objects.get_or_create(job=row, defaults={"tenant_id": row.tenant_id})
    event_add(job=row, message=message, level=level)


@transaction.atomic
def job_fail_validation(*, job: uuid.UUID, code: str, message: str) -> None:
    """validating → failed."""
    row = job_locked(job)
    if row.state == State.VALIDATING:
        job_fail_with(row, code=code, message=message)


def job_fail_with(row: Job, *, code: str, message: str) -> None:
    """A locked row → failed, with a stable code and a sentence."""
    job_end(row, State.FAILED, message=message, level="error", error_code=code, error_message=message)


def job_end(row: Job, state: State, *, message: str, level: str = "info", **changes: object) -> None:
    """A locked row → a terminal state: out of the outbox, and what only training needed becomes garbage."""
    assert state in TERMINAL
    assert row.state not in TERMINAL, "a job ends once"
    Outbox.objects.filter(job=row).delete()
    gone = {"lease_until": None, "dispatch_token": "", "checkpoint": None, "manifest": None, "probe": None}
    job_to(row, state, finished_at=Now(), **gone, **changes)
    event_add(job=row, message=message, level=level)
    tenant = row.tenant.storage_id
    if row.conversations_sha256:
        object_drop(object_key(tenant, row.conversations_sha256))
    for upload in JobUpload.objects.filter(job=row):
        upload_drop(object_key(tenant, upload.sha256))
    JobUpload.objects.filter(job=row).delete()
    if row.manifest is not None:
        object_drop(manifest_key(tenant, Manifest.model_validate(row.manifest).name))
