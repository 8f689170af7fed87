"""Content-Security-Policy: pages run our own scripts and nothing else's."""

from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

#: htmx and the admin set inline styles; scripts are files of ours alone.
POLICY = "; ".join(
    (
        "default-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)


@sync_and_async_middleware
def ContentSecurityMiddleware(  # noqa: N802
    get_response: Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]],
) -> Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]:
    if iscoroutinefunction(get_response):

        async def handle_async(request: HttpRequest) -> HttpResponse:
            return _secured(await get_response(request))

        return handle_async

    def handle(request: HttpRequest) -> HttpResponse:
        return _secured(get_response(request))

    return handle


def _secured(response: HttpResponse) -> HttpResponse:
    response.headers.setdefault("Content-Security-Policy", POLICY)
    return response
