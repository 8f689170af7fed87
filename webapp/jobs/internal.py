"""/internal/…: what trainers call. Bodies and answers are training_jobs.messages, errors as everywhere."""

import hmac
import uuid
from collections.abc import Callable
from typing import TypeVar

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


def _endpoint(message: type[M], verb: Callable[..., BaseModel]) -> Callable[..., HttpResponse]:
    """A POST with a bearer token and one message, answered by the message that `verb` returns."""

    @csrf_exempt
    @require_POST
    @openai_errors
    def endpoint(request: HttpRequest, **of: uuid.UUID) -> HttpResponse:
        answer = verb(**of, token=_bearer(request), message=read_json(message, request.body))
        return HttpResponse(answer.model_dump_json(), content_type="application/json")

    return endpoint


def _bearer(request: HttpRequest) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise NotAuthenticated("Send the token as 'Authorization: Bearer …'.", code="missing_token")
    return token


class Welcome(BaseModel):
    """The answer to a hello."""

    ok: bool = True


def _hello(*, worker: uuid.UUID, token: str, message: WorkerHello) -> Welcome:
    if not hmac.compare_digest(token.encode(), settings().trainer_token.get_secret_value().encode()):
        raise NotAuthenticated("This is not ATTUNE_TRAINER_TOKEN.", code="bad_trainer_token")
    worker_hello(worker=worker, hello=message)
    return Welcome()


#: By the last word of their route.
job_views = {
    "claim": _endpoint(Claim, work.job_claim),
    "heartbeat": _endpoint(Heartbeat, work.job_heartbeat),
    "uploads": _endpoint(UploadRequest, work.job_upload),
    "complete": _endpoint(Complete, work.job_complete),
    "fail": _endpoint(Fail, work.job_fail),
    "release": _endpoint(Release, work.job_release),
}
worker_view = _endpoint(WorkerHello, _hello)
