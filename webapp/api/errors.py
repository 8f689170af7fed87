"""Errors in OpenAI's shape: {"error": {"message", "type", "param", "code"}}, for every kind of view."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import structlog
from asgiref.sync import iscoroutinefunction
from django.core.exceptions import RequestDataTooBig, TooManyFieldsSent, TooManyFilesSent
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views import defaults
from rest_framework import exceptions
from rest_framework.parsers import MultiPartParser
from rest_framework.response import Response
from rest_framework.views import APIView

from webapp.config.faults import (
    BadRequest,
    MethodNotAllowed,
    NotFound,
    TooLarge,
    UnsupportedType,
    UserFault,
)
from webapp.config.pool import pool_fault

_log = structlog.get_logger("attune.errors")
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    500: "server_error",
    502: "server_error",
    503: "server_error",
    504: "server_error",
}
#: How a file is sent, for whoever sent it otherwise.
CURL_UPLOAD = "with curl, -F purpose=fine-tune -F file=@my.jsonl"
_OURS = "Something went wrong on our side. Try again; if it stays, report the request id {}."


def error_body(fault: UserFault) -> dict[str, Any]:
    """The document alone, for a stream that has begun."""
    kind = _TYPES.get(fault.status, "invalid_request_error")
    return {"error": {"message": fault.message, "type": kind, "param": fault.param, "code": fault.code}}


def error_response(fault: UserFault) -> JsonResponse:
    response = JsonResponse(error_body(fault), status=fault.status)
    _add_headers(fault, response)
    return response


def server_fault_body(request: HttpRequest) -> dict[str, Any]:
    """The answer to a fault of ours: nothing but the request id, by which the log has the rest."""
    message = _OURS.format(getattr(request, "request_id", "unknown"))
    return {"error": {"message": message, "type": "server_error", "param": None, "code": "internal_error"}}


def openai_errors(view: Callable[..., Any]) -> Callable[..., Any]:
    """For plain views, sync or async: UserFaults become answers, anything else is logged and becomes a bare 500."""
    if iscoroutinefunction(view):

        @wraps(view)
        async def answer_async(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            try:
                return await view(request, *args, **kwargs)
            except Exception as error:
                return _answer(request, error)

        return answer_async

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except Exception as error:
            return _answer(request, error)

    return answer


def _answer(request: HttpRequest, error: Exception) -> HttpResponse:
    fault = error if isinstance(error, UserFault) else pool_fault(error)
    if fault is not None:
        return error_response(fault)
    if isinstance(error, RequestDataTooBig):
        return error_response(TooLarge("The request's body is too large.", code="request_too_large"))
    _log.exception("unexpected")
    return JsonResponse(server_fault_body(request), status=500)


def exception_handler(error: Exception, context: dict[str, Any]) -> Response:
    """For Django REST framework."""
    fault = error if isinstance(error, UserFault) else _translated(error, context["view"])
    if fault is None:
        _log.exception("unexpected", exc_info=error)
        return Response(server_fault_body(context["request"]._request), status=500)
    response = Response(error_body(fault), status=fault.status)
    _add_headers(fault, response)
    return response


def _add_headers(fault: UserFault, response: Any) -> None:
    if fault.status == 401:
        response["WWW-Authenticate"] = "Bearer"
    if fault.status == 422:
        # For clients that repeat what they need not: nothing here changes by repeating.
        response["x-should-retry"] = "false"
    if fault.status == 503:
        response["retry-after"] = "2"


def _translated(error: Exception, view: APIView) -> UserFault | None:
    """Django's and the framework's own exceptions as ours; None for a fault of ours."""
    takes_files = MultiPartParser in view.parser_classes
    match error:
        case exceptions.ParseError():
            wanted = "multipart/form-data" if takes_files else "JSON"
            return BadRequest(f"The body could not be read: send {wanted}.", code="bad_body")
        case exceptions.MethodNotAllowed():
            return MethodNotAllowed(str(error.detail), code="method_not_allowed")
        case exceptions.UnsupportedMediaType():
            return UnsupportedType(
                f"Send multipart/form-data: {CURL_UPLOAD}."
                if takes_files
                else "Send 'Content-Type: application/json'.",
                code="bad_request",
            )
        case RequestDataTooBig():
            return TooLarge("The request's body is too large.", code="request_too_large")
        case TooManyFieldsSent() | TooManyFilesSent():
            return BadRequest("The request has more fields or files than any of ours.", code="bad_request")
    return pool_fault(error)


def _is_api(request: HttpRequest) -> bool:
    return f"{request.path}/".startswith(("/v1/", "/internal/", "/api/"))


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    if _is_api(request):
        message = f"There is nothing at {request.method} {request.path[:200]}."
        return error_response(NotFound(message, code="unknown_url"))
    return defaults.page_not_found(request, exception)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    if _is_api(request):
        return error_response(BadRequest("The request could not be read.", code="bad_request"))
    return defaults.bad_request(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """Called while the exception is handled; for pages, views of the API have answered by themselves."""
    fault = pool_fault(sys.exception())
    if fault is not None:
        return HttpResponse(fault.message, status=fault.status, headers={"retry-after": "2"})
    if _is_api(request):
        return JsonResponse(server_fault_body(request), status=500)
    return defaults.server_error(request)
