"""/internal/…: what trainers call. Bodies and answers are training_jobs.messages, errors as everywhere."""

import hmac
import uuid
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from pydantic import BaseModel

from training_jobs.messages import (
    Claim,
    Complete,
    Fail,
    Heartbeat,
    Release,
    UploadRequest,
    WorkerHello,
)
from webapp.api.errors import openai_errors
from webapp.config.faults import NotAuthenticated
from webapp.config.settings import settings
from webapp.config.strict_json import read_json
from webapp.jobs import work
from webapp.jobs.workers import worker_hello

M = TypeVar("M", bound=BaseModel)
Answer = Callable[[uuid.UUID, str, Any], BaseModel]


def _endpoint(
    message: type[M],
) -> Callable[[Callable[[uuid.UUID, str, M], BaseModel]], Callable[..., HttpResponse]]:
    """A POST with a bearer token and one message; the view returns the message to answer with."""

    def decorate(view: Callable[[uuid.UUID, str, M], BaseModel]) -> Callable[..., HttpResponse]:
        @csrf_exempt
        @require_POST
        @openai_errors
        @wraps(view)
        def endpoint(request: HttpRequest, ident: uuid.UUID) -> HttpResponse:
            answer = view(ident, _bearer(request), read_json(message, request.body))
            return HttpResponse(answer.model_dump_json(), content_type="application/json")

        return endpoint

    return decorate


def _bearer(request: HttpRequest) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise NotAuthenticated("Send the token as 'Authorization: Bearer …'.", code="missing_token")
    return token


@_endpoint(Claim)
def claim(job: uuid.UUID, token: str, message: Claim) -> BaseModel:
    return work.job_claim(job=job, dispatch_token=token, claim=message)


@_endpoint(Heartbeat)
def heartbeat(job: uuid.UUID, token: str, message: Heartbeat) -> BaseModel:
    return work.job_heartbeat(job=job, token=token, heartbeat=message)


@_endpoint(UploadRequest)
def uploads(job: uuid.UUID, token: str, message: UploadRequest) -> BaseModel:
    return work.job_upload(job=job, token=token, request=message)


@_endpoint(Complete)
def complete(job: uuid.UUID, token: str, message: Complete) -> BaseModel:
    return work.job_complete(job=job, token=token, complete=message)


@_endpoint(Fail)
def fail(job: uuid.UUID, token: str, message: Fail) -> BaseModel:
    return work.job_fail(job=job, token=token, fail=message)


@_endpoint(Release)
def release(job: uuid.UUID, token: str, message: Release) -> BaseModel:
    return work.job_release(job=job, token=token, release=message)


class Welcome(BaseModel):
    """The answer to a hello."""

    ok: bool = True


@_endpoint(WorkerHello)
def hello(worker: uuid.UUID, token: str, message: WorkerHello) -> BaseModel:
    if not hmac.compare_digest(token.encode(), settings().trainer_token.get_secret_value().encode()):
        raise NotAuthenticated("This is not ATTUNE_TRAINER_TOKEN.", code="bad_trainer_token")
    worker_hello(worker=worker, hello=message)
    return Welcome()
