"""/v1/adapters/<name> on the engine: POST …/prefetch says that a request is coming, DELETE that an adapter is gone.

And what /metrics says of adapters in memory and slots, which only the workers know, is asked when somebody reads it.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from inference.http_errors import openai_error
from inference.http_models import served_adapters
from inference.request_scope import current_scope

_ROOT = "/v1/adapters/"


class AdapterRoutes:
    """ASGI middleware, inside AdapterScope; everything else goes on to vLLM."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/metrics":
            await served_adapters(scope["app"].state.openai_serving_models).measure()
        if scope["type"] != "http" or not scope["path"].startswith(_ROOT):
            return await self.app(scope, receive, send)
        response = await self._answer(Request(scope, receive))
        return await response(scope, receive, send)

    async def _answer(self, request: Request) -> JSONResponse:
        adapters = served_adapters(request.app.state.openai_serving_models)
        name = request.url.path.removeprefix(_ROOT)
        if request.method == "DELETE":
            return JSONResponse(await adapters.delete(name))
        if request.method == "POST" and name.endswith("/prefetch"):
            held = await adapters.hold(current_scope(), name.removesuffix("/prefetch"))
            return JSONResponse({"id": held.lora_name, "ready": True})
        return openai_error(405, "Use POST …/prefetch or DELETE.", code="method_not_allowed")
