"""WhiteNoise without a thread for every request: its own middleware is synchronous, which would hold one per stream."""

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.http import HttpRequest, HttpResponse
from whitenoise.middleware import WhiteNoiseMiddleware


class StaticFilesMiddleware(WhiteNoiseMiddleware):
    """Only a request for a static file leaves the event loop."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[..., Any]) -> None:
        super().__init__(get_response)
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        if not iscoroutinefunction(self.get_response):
            return super().__call__(request)
        return self._answer(request)

    async def _answer(self, request: HttpRequest) -> Any:
        file = self.files.get(request.path_info)
        if file is None:
            return await self.get_response(request)
        return await sync_to_async(self._whole)(file, request)

    def _whole(self, file: Any, request: HttpRequest) -> HttpResponse:
        """Read at once: our files are small, and a file's own iterator cannot be drawn on without a thread."""
        served = self.serve(file, request)
        response = HttpResponse(
            b"".join(served.streaming_content), status=served.status_code, headers=served.headers
        )
        served.close()
        return response
