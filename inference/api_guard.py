"""The engine answers only to its gateway: one key on every route, and only the routes that serving needs.

vLLM's own --api-key leaves /invocations, /pause and others open, and its LoRA routes load any path of the machine.
"""

import hashlib
import hmac
from typing import Any

from inference.http_errors import openai_error
from inference.settings import engine_settings

#: Probes and scrapers hold no key.
_OPEN = {("GET", "/health"), ("GET", "/metrics")}
_SERVED = {"/health", "/metrics", "/version", "/tokenize", "/detokenize"}
_SERVED_BELOW_V1 = ("/v1/chat/completions", "/v1/completions", "/v1/models", "/v1/adapters", "/v1/examples")


class ApiGuard:
    """ASGI middleware, outermost. Keys are compared in constant time, by digest so that lengths do not matter."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self._expected = _digest(engine_settings().engine_key.get_secret_value().encode())

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        method, path = scope["method"], scope["path"]
        if (method, path) not in _OPEN and not self._authorised(scope):
            refusal = openai_error(
                401, "Send the engine's key as 'Authorization: Bearer …'.", code="invalid_api_key"
            )
            return await refusal(scope, receive, send)
        if not _is_served(path):
            refusal = openai_error(404, f"The engine does not serve {path[:200]}.", code="unknown_url")
            return await refusal(scope, receive, send)
        return await self.app(scope, receive, send)

    def _authorised(self, scope: Any) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) != 1 or not given[0].startswith(b"Bearer "):
            return False
        return hmac.compare_digest(_digest(given[0].removeprefix(b"Bearer ")), self._expected)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _is_served(path: str) -> bool:
    return path in _SERVED or any(path == root or path.startswith(root + "/") for root in _SERVED_BELOW_V1)
