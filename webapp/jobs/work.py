"""What a trainer does to a job: claim, heartbeat, upload, complete, fail, release. Wrong token or epoch: Fenced."""

import tempfile
import uuid
from datetime import timedelta
from pathlib import Path

from django.db import transaction
from django.db.models.functions import Now

from adapters_store.errors import AdapterCorrupt, AdapterError, StorageUnavailable, WrongBase
from adapters_store.manifest import MANIFEST_FILE, Manifest, manifest_load
from adapters_store.s3 import object_key
from adapters_store.scratch import scratch
from adapters_store.sites import sites_of
from adapters_store.weights import adapter_read
from training_jobs.messages import (
    Base,
    Checkpoint,
    CheckpointDownload,
    Claim,
    Complete,
    Download,
    Fail,
    Heartbeat,
    HeartbeatReply,
    Hyperparameters,
    JobSpec,
    Recipe,
    Release,
    StateReply,
    UploadRequest,
    UploadSlot,
)
from webapp.config.faults import BadRequest
from webapp.datasets.storage import PUT_SECONDS, object_lock, storage_away, store, upload_drop
from webapp.jobs.events import event_add, events_add
from webapp.jobs.lifecycle import attempt_faulted, attempt_void, job_fail_with, job_requeue, job_to
from webapp.jobs.locks import GET_SECONDS, LEASE, fenced, job_held, job_locked, state_of
from webapp.jobs.models import TERMINAL, Job, JobUpload, Outbox, State, Worker
from webapp.jobs.probes import ProbeInvalid, probe_read
from webapp.jobs.tokens import epoch_token, matches, stored

#: Adapters and training states are small beside their base model; a larger upload is a mistake.
MAX_OBJECT_BYTES = 4_000_000_000


@transaction.atomic
def job_claim(*, job: uuid.UUID, token: str, message: Claim) -> JobSpec:
    """dispatched → running, in the next epoch. A worker that did not hear the answer may ask again."""
    row, worker = job_locked(job), uuid.UUID(message.worker)
    if not matches(token, row.dispatch_token):
        raise fenced()
    if row.state == State.DISPATCHED:
        row.epoch, row.worker = row.epoch + 1, worker
        job_to(
            row,
            State.RUNNING,
            epoch=row.epoch,
            worker=worker,
            token=stored(epoch_token(row.id, row.epoch, worker)),
            lease_until=Now() + LEASE,
            events_heard=0,
            **({} if row.started_at else {"started_at": Now()}),
        )
        Outbox.objects.filter(job=row).delete()
        # Not only at its next hello, or it would be sent another job that has to wait.
        Worker.objects.filter(id=worker).update(busy=True)
        event_add(
            job=row, message="A trainer took the job." if row.epoch == 1 else f"Attempt {row.epoch} began."
        )
    elif row.state != State.RUNNING or row.worker != worker:
        raise fenced()
    return _spec(row, epoch_token(row.id, row.epoch, worker))


def _spec(row: Job, token: str) -> JobSpec:
    def url(sha256: str) -> str:
        return store().presign_get(object_key(row.tenant.storage_id, sha256), seconds=GET_SECONDS)

    checkpoint = Checkpoint.model_validate(row.checkpoint) if row.checkpoint else None
    return JobSpec(
        job=row.id.hex,
        epoch=row.epoch,
        token=token,
        base=Base(name=row.base.name, digest=row.base.digest),
        recipe=Recipe.model_validate(row.recipe),
        hyperparameters=Hyperparameters.model_validate(row.hyperparameters),
        conversations=Download(
            sha256=row.conversations_sha256, size=row.conversations_size, url=url(row.conversations_sha256)
        ),
        checkpoint=checkpoint and CheckpointDownload(**checkpoint.model_dump(), url=url(checkpoint.sha256)),
        failed_attempts=row.failed_attempts,
    )


@transaction.atomic
def job_heartbeat(*, job: uuid.UUID, token: str, message: Heartbeat) -> HeartbeatReply:
    """Extends the lease, and takes in the news. A worker whose job was cancelled or paused learns it here."""
    row = job_held(job, token=token, epoch=message.epoch)
    if row.state in (State.RUNNING, State.PAUSED):
        if message.checkpoint is not None:
            _register(row, message.checkpoint)
        events_add(job=row, events=message.events)
        news = {"step": message.step, "total_steps": message.total_steps}
        if row.state == State.RUNNING:
            Job.objects.filter(id=row.id).update(**news, lease_until=Now() + LEASE)
        else:
            Job.objects.filter(id=row.id).update(**news)
    return HeartbeatReply(state=state_of(row), stop=row.state != State.RUNNING)


def _register(row: Job, checkpoint: Checkpoint) -> None:
    """Where the next attempt begins; the one before becomes garbage. Raises BadRequest if it was never uploaded."""
    before = row.checkpoint
    if before and before["sha256"] == checkpoint.sha256:
        return
    if not JobUpload.objects.filter(job=row, sha256=checkpoint.sha256).exists() or not _is_there(
        row, checkpoint
    ):
        raise BadRequest("This checkpoint is not in storage; upload it first.", code="object_missing")
    row.checkpoint = checkpoint.model_dump()
    Job.objects.filter(id=row.id).update(checkpoint=row.checkpoint, away=timedelta())
    if before:
        JobUpload.objects.filter(job=row, sha256=before["sha256"]).delete()
        upload_drop(object_key(row.tenant.storage_id, before["sha256"]))


def _is_there(row: Job, thing: Checkpoint) -> bool:
    try:
        return store().size(object_key(row.tenant.storage_id, thing.sha256)) == thing.size
    except StorageUnavailable:
        raise storage_away() from None


@transaction.atomic
def job_upload(*, job: uuid.UUID, token: str, message: UploadRequest) -> UploadSlot:
    """A URL for exactly these bytes; a paused worker may still upload its checkpoint."""
    row = job_held(job, token=token, epoch=message.epoch)
    if row.state not in (State.RUNNING, State.PAUSED):
        raise fenced()
    if message.size > MAX_OBJECT_BYTES:
        raise BadRequest(f"An object has at most {MAX_OBJECT_BYTES:,} bytes.", code="object_too_large")
    key = object_key(row.tenant.storage_id, message.sha256)
    # From here on the sweeper leaves these bytes alone.
    object_lock(key)
    JobUpload.objects.get_or_create(
        job=row, sha256=message.sha256, defaults={"tenant_id": row.tenant_id, "size": message.size}
    )
    try:
        there = store().size(key) == message.size
    except StorageUnavailable:
        raise storage_away() from None
    url, headers = store().presign_put(key, sha256=message.sha256, size=message.size, seconds=PUT_SECONDS)
    return UploadSlot(url=url, headers=headers, already_there=there)


@transaction.atomic
def job_complete(*, job: uuid.UUID, token: str, message: Complete) -> StateReply:
    """running → gating, after every byte of the adapter was read and checked. Idempotent.

    An adapter that is not sound fails the job: the worker's next attempt would send the same.
    """
    row = job_held(job, token=token, epoch=message.epoch)
    if row.state in (State.GATING, State.SUCCEEDED, State.FAILED):
        return StateReply(state=state_of(row))
    if row.state != State.RUNNING:
        raise fenced()
    try:
        manifest = _verified(row, message)
        probe_read(row, message.probe)
    except StorageUnavailable:
        raise storage_away() from None
    except ProbeInvalid as invalid:
        job_fail_with(row, code="probe_invalid", message=str(invalid))
        return StateReply(state="failed")
    except AdapterError as error:
        job_fail_with(row, code=error.code, message=f"The trained adapter was refused: {error.message}")
        return StateReply(state="failed")
    job_to(
        row,
        State.GATING,
        manifest=manifest.model_dump(mode="json"),
        probe=message.probe.model_dump(),
        report=message.report.model_dump(),
        trained_tokens=message.report.trained_tokens,
        step=message.report.steps,
        total_steps=message.report.steps,
        lease_until=None,
        dispatch_token="",
    )
    event_add(job=row, message="Training finished; the engine is trying the adapter.")
    return StateReply(state="gating")


def _verified(row: Job, complete: Complete) -> Manifest:
    """Download, read and check the whole adapter. Raises AdapterError."""
    tenant = row.tenant.storage_id
    with scratch(Path(tempfile.gettempdir())) as folder:
        uploaded = complete.manifest
        store().get_to_file(
            object_key(tenant, uploaded.sha256),
            folder / MANIFEST_FILE,
            sha256=uploaded.sha256,
            size=uploaded.size,
        )
        manifest = manifest_load((folder / MANIFEST_FILE).read_bytes())
        _check_manifest(row, manifest)
        for filename, file in manifest.files.items():
            key = object_key(tenant, file.sha256)
            store().get_to_file(key, folder / filename, sha256=file.sha256, size=file.size)
        adapter_read(folder, expected_digest=manifest.digest)
    return manifest


def _check_manifest(row: Job, manifest: Manifest) -> None:
    if manifest.base.digest != row.base.digest:
        raise WrongBase("It was trained on other weights than this base model's.")
    recipe = Recipe.model_validate(row.recipe)
    if (manifest.method, manifest.position, manifest.rank) != (recipe.method, recipe.position, recipe.rank):
        raise AdapterCorrupt("It does not have the method, position and rank that the job asked for.")
    sites = sites_of(manifest)
    if recipe.target_modules and {site.target_module for site in sites} != {*recipe.target_modules}:
        raise AdapterCorrupt("It does not adapt the target_modules that the job asked for.")
    if recipe.layers and {site.layer for site in sites} != {*recipe.layers}:
        raise AdapterCorrupt("It does not adapt the layers that the job asked for.")


@transaction.atomic
def job_fail(*, job: uuid.UUID, token: str, message: Fail) -> StateReply:
    """running → failed, or with `retry` → queued, until that was enough. Idempotent."""
    row = job_held(job, token=token, epoch=message.epoch)
    if row.state in TERMINAL:
        return StateReply(state=state_of(row))
    if row.state != State.RUNNING:
        raise fenced()
    if not message.retry:
        job_fail_with(row, code=message.code, message=message.message)
    elif message.counts:
        attempt_faulted(row, why=message.message, code=message.code)
    else:
        attempt_void(row, why=message.message, code=message.code)
    return StateReply(state=state_of(row))


@transaction.atomic
def job_release(*, job: uuid.UUID, token: str, message: Release) -> StateReply:
    """running → queued: the worker is stopping in good order, which is nobody's failure. Paused stays paused."""
    row = job_held(job, token=token, epoch=message.epoch)
    if row.state in TERMINAL:
        return StateReply(state=state_of(row))
    if row.state not in (State.RUNNING, State.PAUSED):
        raise fenced()
    if message.checkpoint is not None:
        _register(row, message.checkpoint)
    if row.state == State.RUNNING:
        job_requeue(row, message="The trainer is restarting; the job goes on from its last checkpoint.")
    return StateReply(state=state_of(row))
