"""What one HTTP request holds: its adapters, in every tier, from the moment it names them until its last byte.

vLLM looks a model's name up twice: first to learn whether it must be resolved, then to find the adapter. Between the
two, and until the request ends, the answer must not change; and the first look-up must never skip our resolver, or an
adapter that is gone would still be served. So the "known adapters" that vLLM sees are those of the current request.
"""

from collections.abc import Callable, Iterator, MutableMapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from adapters_store.errors import AdapterError
from inference import adapter_metrics as metrics
from inference.http_errors import error_response

if TYPE_CHECKING:
    from vllm.lora.request import LoRARequest


class NoRequestScope(AdapterError):
    """The server was started without the middleware that gives adapters back."""

    code = "engine_misconfigured"


class RequestScope:
    """Adapters that one request holds, by the name it asked for, and what to call when it ends."""

    def __init__(self) -> None:
        self.adapters: dict[str, LoRARequest] = {}
        self._at_first_byte: list[Callable[[], None]] = []
        self._at_end: list[Callable[[], None]] = []
        self._closed = False

    def on_first_byte(self, release: Callable[[], None]) -> None:
        """Call `release` with the body's first byte (a stream's prompt is done then), or when the request ends."""
        self._at_first_byte.append(release)
        if self._closed:
            self.first_byte()

    def on_end(self, release: Callable[[], None]) -> None:
        """Call `release` when the request ends; at once if it has ended already (its client went away)."""
        self._at_end.append(release)
        if self._closed:
            self.close()

    def first_byte(self) -> None:
        while self._at_first_byte:
            self._at_first_byte.pop()()

    def close(self) -> None:
        self._closed = True
        self.first_byte()
        while self._at_end:
            self._at_end.pop()()


_current: ContextVar[RequestScope | None] = ContextVar("attune_request_scope", default=None)


def current_scope() -> RequestScope:
    scope = _current.get()
    if scope is None:
        raise NoRequestScope(
            "Adapters need the engine's request scope: start vLLM with "
            "--middleware inference.request_scope.AdapterScope, or use python -m inference.serve."
        )
    return scope


class RequestAdapters(MutableMapping[str, "LoRARequest"]):
    """Stands in for vLLM's `lora_requests`, which never shrinks: a view of the current request's adapters."""

    def __getitem__(self, name: str) -> "LoRARequest":
        return self._adapters()[name]

    def __setitem__(self, name: str, request: "LoRARequest") -> None:
        current_scope().adapters[name] = request

    def __delitem__(self, name: str) -> None:
        del self._adapters()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._adapters())

    def __len__(self) -> int:
        return len(self._adapters())

    @staticmethod
    def _adapters() -> "dict[str, LoRARequest]":
        scope = _current.get()
        return {} if scope is None else scope.adapters


class AdapterScope:
    """ASGI middleware: opens a scope for each request, closes it at the end, and words AdapterErrors as OpenAI does."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        held, started = RequestScope(), False

        async def watched(message: Any) -> None:
            nonlocal started
            started = True
            if message["type"] == "http.response.body" and message.get("body"):
                held.first_byte()
            await send(message)

        token = _current.set(held)
        try:
            await self.app(scope, receive, watched)
        except AdapterError as error:
            metrics.REFUSED.labels(error.code).inc()
            if started:
                raise
            await error_response(error)(scope, receive, send)
        finally:
            _current.reset(token)
            held.close()
        return None
