"""/v1/fine_tuning/jobs"""

from collections.abc import Callable
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from training_jobs.messages import ONLY_LORA_HAS_TARGETS
from webapp.adapters.models import BaseModel
from webapp.adapters.visible import adapters_usable
from webapp.api.files import listed
from webapp.api.idempotency import once
from webapp.api.requests import (
    AdapterAsked,
    CheckpointsPage,
    HyperparametersAsked,
    JobRequest,
    MethodAsked,
    Page,
    metadata_filter,
    read_form,
)
from webapp.api.rows import file_by_id, job_by_id, jobs_of, page_of
from webapp.api.shapes import (
    CheckpointList,
    EventList,
    JobList,
    JobObject,
    checkpoint_shape,
    event_shape,
    job_shape,
    job_shapes,
)
from webapp.config.faults import BadRequest, NotFound
from webapp.config.strict_json import read_json
from webapp.datasets.models import File
from webapp.datasets.readers import check_readable, readable_by
from webapp.jobs.create import Wishes, job_create
from webapp.jobs.lifecycle import job_cancel, job_pause, job_resume
from webapp.jobs.models import Job, JobEvent
from webapp.tenants.scope import Scope, end_user_for

_PAGE = [OpenApiParameter("after", str), OpenApiParameter("limit", int)]
_KEY = OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER)


class Jobs(APIView):
    @extend_schema(operation_id="jobs_create", request=JobRequest, responses=JobObject, parameters=[_KEY])
    def post(self, request: Request) -> Response:
        """Train an adapter. `metadata.user` names whom it is for; without it, it is the tenant's."""
        raw: bytes = request._request.body
        asked = read_json(JobRequest, raw)
        scope: Scope = request.user

        def create() -> dict[str, Any]:
            job = job_create(
                tenant=scope.tenant,
                base=_base(asked.model),
                training_file=_readable(scope, asked.training_file, "training_file"),
                validation_file=_readable(scope, asked.validation_file, "validation_file")
                if asked.validation_file
                else None,
                end_user=end_user_for(scope, (asked.metadata or {}).get("user"), param="metadata.user"),
                wishes=_wishes(asked),
                suffix=asked.suffix or "",
                seed=asked.seed,
                metadata=asked.metadata,
            )
            return job_shape(jobs_of(scope).get(id=job.id), scope=scope)

        return once(request, route="jobs", body=raw, do=create)

    @extend_schema(operation_id="jobs_list", responses=JobList, parameters=_PAGE)
    def get(self, request: Request) -> Response:
        """The jobs that this key may see, newest first; `metadata[key]=value` filters."""
        query, wanted = metadata_filter(request.query_params)
        asked = read_form(Page, query)
        rows = jobs_of(request.user)
        for key, value in wanted.items():
            # What a job is about is asked of those alone that the caller may read.
            rows = rows.filter(readable_by(request.user, "training_file__"), metadata__contains={key: value})
        after = job_by_id(request.user, asked.after) if asked.after else None
        page, more = page_of(rows, after=after, limit=asked.limit, newest_first=True)
        return Response(listed(job_shapes(page, scope=request.user), more))


class JobView(APIView):
    @extend_schema(operation_id="jobs_retrieve", responses=JobObject)
    def get(self, request: Request, job: str) -> Response:
        return Response(job_shape(job_by_id(request.user, job), scope=request.user))


def _answered(request: Request, job: str, verb: Callable[..., Job]) -> Response:
    row = job_by_id(request.user, job)
    check_readable(scope=request.user, file=row.training_file, to="cancel, pause or resume a training on it")
    verb(job=row)
    return Response(job_shape(jobs_of(request.user).get(id=row.id), scope=request.user))


class JobCancel(APIView):
    @extend_schema(operation_id="jobs_cancel", request=None, responses=JobObject)
    def post(self, request: Request, job: str) -> Response:
        """End a job at once; its worker is told at its next heartbeat."""
        return _answered(request, job, job_cancel)


class JobPause(APIView):
    @extend_schema(operation_id="jobs_pause", request=None, responses=JobObject)
    def post(self, request: Request, job: str) -> Response:
        """Give the trainer to others; the job waits with its last checkpoint."""
        return _answered(request, job, job_pause)


class JobResume(APIView):
    @extend_schema(operation_id="jobs_resume", request=None, responses=JobObject)
    def post(self, request: Request, job: str) -> Response:
        """Back into the queue, from the last checkpoint."""
        return _answered(request, job, job_resume)


class JobEvents(APIView):
    @extend_schema(operation_id="jobs_events", responses=EventList, parameters=_PAGE)
    def get(self, request: Request, job: str) -> Response:
        """What happened, newest first; metrics are events of the type `metrics`."""
        asked = read_form(Page, request.query_params)
        rows: QuerySet[JobEvent] = job_by_id(request.user, job).events.order_by("-id")
        if asked.after is not None:
            digits = asked.after.removeprefix("ftevent-")
            number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 18 else 0
            if not rows.filter(id=number).exists():
                raise NotFound("There is no such event of this job.", code="event_not_found", param="after")
            rows = rows.filter(id__lt=number)
        found = list(rows[: asked.limit + 1])
        return Response(
            listed([event_shape(event) for event in found[: asked.limit]], len(found) > asked.limit)
        )


class JobCheckpoints(APIView):
    @extend_schema(operation_id="jobs_checkpoints", responses=CheckpointList, parameters=_PAGE)
    def get(self, request: Request, job: str) -> Response:
        """The adapters that can be used: for a finished job, its result."""
        asked = read_form(CheckpointsPage, request.query_params)
        row = job_by_id(request.user, job)
        results = adapters_usable(request.user).filter(job=row)
        adapter = results.first() if asked.after is None else None
        return Response(listed([checkpoint_shape(row, adapter)] if adapter else [], False))


def _base(name: str) -> BaseModel:
    base = BaseModel.objects.filter(name=name).first()
    if base is None:
        known = ", ".join(
            BaseModel.objects.order_by("-is_default", "name").values_list("name", flat=True)[:10]
        )
        raise BadRequest(
            f"There is no base model '{name[:100]}' to train. There are: {known or 'none yet'}.",
            code="model_not_found",
            param="model",
        )
    return base


def _readable(scope: Scope, public_id: str, param: str) -> File:
    file = file_by_id(scope, public_id, param=param)
    check_readable(scope=scope, file=file, to="train on it", param=param)
    return file


def _wishes(asked: JobRequest) -> Wishes:
    method = asked.method or MethodAsked(type="supervised")
    chosen, other = (method.dpo, "supervised") if method.type == "dpo" else (method.supervised, "dpo")
    if getattr(method, other) is not None:
        raise BadRequest(
            f"The method is of the type {method.type}: leave '{other}' out.",
            code="invalid_value",
            param=f"method.{other}",
        )
    nested = chosen.hyperparameters if chosen else None
    if nested and asked.hyperparameters:
        raise BadRequest(
            "Give hyperparameters in 'method' or at the top level, not in both.",
            code="invalid_value",
            param="hyperparameters",
        )
    hyper = nested or asked.hyperparameters or HyperparametersAsked()
    adapter = asked.adapter or AdapterAsked()
    if adapter.alpha is not None and adapter.method != "lora":
        raise BadRequest("Only lora has an alpha.", code="invalid_value", param="adapter.alpha")
    if adapter.target_modules is not None and adapter.method != "lora":
        raise BadRequest(ONLY_LORA_HAS_TARGETS, code="invalid_value", param="adapter.target_modules")
    return Wishes(
        type=method.type,
        **adapter.model_dump(exclude_none=True),
        **hyper.model_dump(),
        held_out=asked.held_out,
        asked={"hyperparameters": hyper.model_dump(), "adapter": adapter.model_dump(exclude_none=True)},
    )
