"""Rows as OpenAI's objects. Fields after "Attune's own" are extensions that its client passes through."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from math import ceil
from typing import Any, Literal

from pydantic import BaseModel

from training_jobs.messages import JobType
from webapp.adapters.models import Adapter
from webapp.adapters.models import BaseModel as Base
from webapp.config.settings import settings
from webapp.datasets.models import File
from webapp.datasets.readers import may_read_file
from webapp.jobs.delay import Delay, delays_of
from webapp.jobs.models import Job, JobEvent, State
from webapp.jobs.time_left import time_left
from webapp.tenants.scope import Scope

#: Our states in OpenAI's words; it has none for a pause.
STATUS: dict[str, str] = {
    State.VALIDATING: "validating_files",
    State.QUEUED: "queued",
    State.DISPATCHED: "queued",
    State.RUNNING: "running",
    State.PAUSED: "queued",
    State.GATING: "running",
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.CANCELLED: "cancelled",
}


class Deleted(BaseModel):
    id: str
    object: Literal["file", "model"]
    deleted: bool = True


class FileObject(BaseModel):
    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    filename: str
    purpose: str
    status: Literal["processed", "error"]
    expires_at: int | None = None
    status_details: str | None = None
    #: Attune's own: {rows, good, bad, examples, error, code, problems [{line, field, reason, fix}], notes, facts,
    #: duplicates {rows, listed [{id, line, same_as}]}, near_duplicates {rows, listed [{id, line, like}]}, too_long
    #: {rows, listed [{id, line, bytes}]}, languages {code: conversations}, sensitive [{kind, count, trained, rows,
    #: listed [{id, line}]}], masked, and for people's chats speakers [{name, messages}], me; for an assistant's voice,
    #: voices {voice: [{before, answer}]}; of a ZIP left_out {files, listed [{entry, name, reason}]}}.
    #: Lists leave the long ones out (_LONG); /v1/files/{id}/report has every bad row.
    report: dict[str, Any]
    format: str


class JobError(BaseModel):
    code: str
    message: str
    param: str | None = None


class JobObject(BaseModel):
    id: str
    object: Literal["fine_tuning.job"] = "fine_tuning.job"
    created_at: int
    model: str
    organization_id: str
    result_files: list[str]
    seed: int
    status: str
    training_file: str
    validation_file: str | None
    hyperparameters: dict[str, int | float | str]
    method: dict[str, Any]
    error: JobError | None
    finished_at: int | None
    #: Of a running job, as OpenAI has it; of one that waits `waiting.training_seconds` says what is known.
    estimated_finish: int | None
    fine_tuned_model: str | None
    trained_tokens: int | None
    user_provided_suffix: str | None
    metadata: dict[str, str]
    integrations: list[Any] = []
    #: Attune's own: what is trained, how far it is, and what was found (training_jobs.messages.Report, and `gate` from
    #: webapp/jobs/verdict.py).
    adapter: dict[str, Any]
    progress: dict[str, Any]
    #: Attune's own, while it does not move: {reason, message, position, training_seconds}.
    waiting: dict[str, Any] | None
    report: dict[str, Any] | None
    #: Attune's own, once the files are read: what it is judged by (webapp/jobs/prepare.py, Judged).
    held_out: dict[str, Any] | None


class EventObject(BaseModel):
    id: str
    object: Literal["fine_tuning.job.event"] = "fine_tuning.job.event"
    created_at: int
    level: str
    message: str
    type: Literal["message", "metrics"]
    data: dict[str, float] | None


class CheckpointObject(BaseModel):
    id: str
    object: Literal["fine_tuning.job.checkpoint"] = "fine_tuning.job.checkpoint"
    created_at: int
    fine_tuned_model_checkpoint: str
    fine_tuning_job_id: str
    metrics: dict[str, float]
    step_number: int


class ModelObject(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    #: Attune's own: what kind of model it is, and what to know about it.
    attune: dict[str, Any]


class ListObject(BaseModel):
    object: Literal["list"] = "list"
    has_more: bool = False
    first_id: str | None = None
    last_id: str | None = None


class FileList(ListObject):
    data: list[FileObject]


class JobList(ListObject):
    data: list[JobObject]


class EventList(ListObject):
    data: list[EventObject]


class CheckpointList(ListObject):
    data: list[CheckpointObject]


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelObject]


def seconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp())


#: What is told of a file that only another person may read: counts, no words.
_COUNTS = ("rows", "good", "bad", "examples")
#: What lists of files leave out.
_LONG = ("problems", "sensitive", "duplicates", "near_duplicates", "too_long", "left_out", "voices")


def file_shape(file: File, *, scope: Scope, brief: bool = False) -> dict[str, Any]:
    private = not may_read_file(scope=scope, file=file)
    report = {
        key: value
        for key, value in file.report.items()
        if (key in _COUNTS or not private) and not (brief and key in _LONG)
    }
    return FileObject(
        id=file.public_id,
        bytes=file.size,
        created_at=seconds(file.created_at) or 0,
        filename="(private)" if private else file.filename,
        purpose=file.purpose,
        status=file.status,
        expires_at=seconds(file.expires_at),
        status_details=report.get("error"),
        report=report,
        format=file.format,
    ).model_dump()


def job_shape(job: Job, *, scope: Scope) -> dict[str, Any]:
    """`job` as `rows.jobs_of` has it."""
    return job_shapes([job], scope=scope)[0]


def job_shapes(jobs: Sequence[Job], *, scope: Scope) -> list[dict[str, Any]]:
    delays = delays_of(jobs)
    return [_job_shape(job, scope=scope, delay=delays.get(job.id)) for job in jobs]


def _job_shape(job: Job, *, scope: Scope, delay: Delay | None) -> dict[str, Any]:
    """`job` with its tenant, plan, end user, base, files and (reverse) adapter selected.

    Of a job that is another person's own, its state and its numbers; not what they called it.
    """
    private = not may_read_file(scope=scope, file=job.training_file)
    asked = {"learning_rate_multiplier": "auto", **job.requested.get("hyperparameters", {})}
    told = ("n_epochs", "batch_size", "beta")
    hyperparameters = {**asked, **{key: value for key, value in job.hyperparameters.items() if key in told}}
    job_type: JobType = "dpo" if "beta" in hyperparameters else "supervised"
    adapter = getattr(job, "adapter", None)
    result = job.result_file if job.result_file and job.result_file.deleted_at is None else None
    left = time_left(job)
    waiting = None
    if delay is not None:
        waiting = {**asdict(delay), "training_seconds": None if left is None else ceil(left)}
    return JobObject(
        id=job.public_id,
        created_at=seconds(job.created_at) or 0,
        model=job.base.name,
        organization_id=job.tenant.public_id,
        result_files=[result.public_id] if result else [],
        seed=job.seed,
        status=STATUS[job.state],
        training_file=job.training_file.public_id,
        validation_file=job.validation_file.public_id if job.validation_file else None,
        hyperparameters=hyperparameters,
        method={"type": job_type, job_type: {"hyperparameters": hyperparameters}},
        error=JobError(code=job.error_code, message=job.error_message) if job.state == State.FAILED else None,
        finished_at=seconds(job.finished_at),
        estimated_finish=ceil(time.time() + left)
        if job.state == State.RUNNING and left is not None
        else None,
        fine_tuned_model=adapter.public_name
        if adapter and job.state == State.SUCCEEDED and not adapter.deleted_at and not private
        else None,
        trained_tokens=job.trained_tokens if job.state == State.SUCCEEDED else None,
        user_provided_suffix=job.suffix if job.suffix and not private else None,
        metadata={} if private else job.metadata,
        adapter=job.recipe,
        progress={"state": job.state, "step": job.step, "total_steps": job.total_steps, "attempt": job.epoch},
        waiting=waiting,
        report=job.report or None,
        held_out=job.held_out or None,
    ).model_dump()


def event_shape(event: JobEvent) -> dict[str, Any]:
    return EventObject(
        id=event.public_id,
        created_at=seconds(event.created_at) or 0,
        level=event.level,
        message=event.message,
        type="metrics" if event.metrics is not None else "message",
        data=event.metrics,
    ).model_dump()


def checkpoint_shape(job: Job, adapter: Adapter) -> dict[str, Any]:
    """A finished job's one usable checkpoint is its result; those on the way are training state."""
    named = {"train_loss": "train_loss", "held_out_loss_after": "full_valid_loss"}
    metrics = {theirs: job.report[ours] for ours, theirs in named.items() if job.report.get(ours) is not None}
    step = job.report.get("best_step") or job.step
    return CheckpointObject(
        id=f"ftckpt_{job.id.hex}",
        created_at=seconds(adapter.created_at) or 0,
        fine_tuned_model_checkpoint=adapter.public_name,
        fine_tuning_job_id=job.public_id,
        metrics={"step": step, **metrics},
        step_number=step,
    ).model_dump()


def base_shape(base: Base) -> dict[str, Any]:
    about = {
        "kind": "base",
        "label": base.label,
        "license": base.license,
        "attribution": base.attribution,
        "languages": base.languages,
        "context_length": min(base.context_length, settings().max_model_len),
        "default": base.is_default,
    }
    return ModelObject(
        id=base.name, created=seconds(base.created_at) or 0, owned_by="attune", attune=about
    ).model_dump()


def adapter_shape(adapter: Adapter) -> dict[str, Any]:
    """`adapter` with its tenant, base, job and end user selected."""
    about = {
        "kind": "adapter",
        "base": adapter.base.name,
        "label": adapter.base.label,
        "attribution": adapter.base.attribution,
        "user": adapter.end_user.external_id if adapter.end_user else None,
        "active": adapter.end_user is not None and adapter.end_user.active_adapter_id == adapter.id,
        "version": adapter.version,
        "method": adapter.method,
        "position": adapter.position,
        "rank": adapter.rank,
        "bytes": adapter.size,
        "job": adapter.job.public_id,
        "passed": adapter.job.state == State.SUCCEEDED,
    }
    return ModelObject(
        id=adapter.public_name,
        created=seconds(adapter.created_at) or 0,
        owned_by=adapter.tenant.public_id,
        attune=about,
    ).model_dump()
