"""/v1/adapters/<name> on the engine: POST …/prefetch says that a request is coming, DELETE that an adapter is gone.

POST …/pin keeps one in memory, and DELETE …/pin lets it go when others need the room.

And what /metrics says of adapters in memory and slots, which only the workers know, is asked for when somebody reads
it: the page itself waits for nobody, and has what was answered last.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from inference.http_errors import openai_error
from inference.http_models import ServedAdapters, measure, served_adapters
from inference.request_scope import current_scope

_ROOT = "/v1/adapters/"


class AdapterRoutes:
    """ASGI middleware, inside AdapterScope; everything else goes on to vLLM."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/metrics":
            measure(scope["app"].state.openai_serving_models)
        if scope["type"] != "http" or not scope["path"].startswith(_ROOT):
            return await self.app(scope, receive, send)
        response = await self._answer(Request(scope, receive))
        return await response(scope, receive, send)

    async def _answer(self, request: Request) -> JSONResponse:
        adapters = served_adapters(request.app.state.openai_serving_models)
        name = request.url.path.removeprefix(_ROOT)
        if name.endswith("/pin"):
            return await self._pin(request, adapters, name.removesuffix("/pin"))
        if request.method == "DELETE":
            return JSONResponse(await adapters.delete(name))
        if request.method == "POST" and name.endswith("/prefetch"):
            held = await adapters.hold(current_scope(), name.removesuffix("/prefetch"))
            return JSONResponse({"id": held.lora_name, "ready": True})
        return openai_error(
            405, "Use POST …/prefetch, POST or DELETE …/pin, or DELETE.", code="method_not_allowed"
        )

    async def _pin(self, request: Request, adapters: ServedAdapters, name: str) -> JSONResponse:
        if request.method == "POST":
            return JSONResponse({"id": await adapters.pin(current_scope(), name), "pinned": True})
        if request.method == "DELETE":
            known, was_pinned = await adapters.unpin(name)
            return JSONResponse({"id": known, "pinned": False, "was_pinned": was_pinned})
        return openai_error(405, "Use POST or DELETE …/pin.", code="method_not_allowed")
