"""Every response names its request, every log line of a request too, and each request gets one line of its own."""

import re
import time
import uuid
from collections.abc import Awaitable, Callable

import structlog
from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

from webapp.config.logs import route_of

_ACCEPTED = re.compile(r"[A-Za-z0-9_.-]{8,64}")
_log = structlog.get_logger("attune.request")


@sync_and_async_middleware
def RequestIdMiddleware(  # noqa: N802 (Django names middleware like classes)
    get_response: Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]],
) -> Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]:
    """Set `request.request_id` and `x-request-id`; a client's own well-formed id is kept."""
    if iscoroutinefunction(get_response):

        async def handle_async(request: HttpRequest) -> HttpResponse:
            started = _begin(request)
            return _end(request, await get_response(request), started)

        return handle_async

    def handle(request: HttpRequest) -> HttpResponse:
        started = _begin(request)
        return _end(request, get_response(request), started)

    return handle


def request_id_of(given: str) -> str:
    """A client's own id if it is well formed, else a new one."""
    return given if _ACCEPTED.fullmatch(given) else f"req_{uuid.uuid4().hex}"


def _begin(request: HttpRequest) -> float:
    request.request_id = request_id_of(request.headers.get("x-request-id", ""))
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(request_id=request.request_id)
    return time.perf_counter()


def _end(request: HttpRequest, response: HttpResponse, started: float) -> HttpResponse:
    response["x-request-id"] = request.request_id
    _log.info(
        "request",
        method=request.method,
        route=route_of(request),
        status=response.status_code,
        seconds=round(time.perf_counter() - started, 4),
    )
    return response
