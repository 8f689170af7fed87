"""The engine, asked one thing at a time: what the dispatcher wants of it. Chats stream (webapp/chat/engine.py)."""

import ssl
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import httpx

from webapp.config.settings import settings

#: Seconds. The engine is near, so either it takes the connection at once or it is not there.
_CONNECT = 5.0


@cache
def certificates() -> ssl.SSLContext:
    """The system's, read once: that takes longer than what the engine is asked, and httpx does it for every client."""
    return httpx.create_ssl_context()


@dataclass(frozen=True)
class Engine:
    """The engine's server, asked with the gateway's key. Every method raises httpx.HTTPError."""

    url: str
    key: str = field(repr=False)

    def complete(self, body: dict[str, Any], *, seconds: float) -> httpx.Response:
        """Prompts as text or token ids; no chat template."""
        return self._ask("POST", "/v1/completions", seconds=seconds, json=body)

    def example(self, messages: list[dict[str, str]], *, seconds: float) -> httpx.Response:
        """The tokens of a conversation's last message, an answer, and of what comes before it."""
        return self._ask("POST", "/v1/examples", seconds=seconds, json={"messages": messages})

    def forget(self, adapter: str, *, seconds: float) -> httpx.Response:
        """`adapter`: "<tenant>/<serving name>"; out of its disk, its memory and its slots."""
        return self._ask("DELETE", f"/v1/adapters/{adapter}", seconds=seconds)

    def _ask(self, method: str, path: str, *, seconds: float, **more: Any) -> httpx.Response:
        return httpx.request(
            method,
            f"{self.url}{path}",
            headers={"Authorization": f"Bearer {self.key}"},
            timeout=httpx.Timeout(seconds, connect=_CONNECT),
            # The engine is ours: no proxy of the environment stands between.
            trust_env=False,
            verify=certificates(),
            **more,
        )


def engine() -> Engine:
    return Engine(settings().engine_url, settings().engine_key.get_secret_value())
