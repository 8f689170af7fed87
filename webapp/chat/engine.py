"""The engine's HTTP client, one a process, and the events of one answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakKeyDictionary

import httpx
import orjson

from webapp.chat.engine_errors import engine_refusal, engine_silent, engine_unreachable
from webapp.config.settings import settings

#: Seconds. Reading waits for the next token: a long prompt behind a queue takes its time, a dead engine does not.
_TIMEOUT = httpx.Timeout(connect=5, write=30, read=120, pool=30)
_LIMITS = httpx.Limits(max_connections=2000, max_keepalive_connections=50, keepalive_expiry=30)
_MAX_ERROR_BYTES = 64_000
_DONE = b"[DONE]"

_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()


def engine_client() -> httpx.AsyncClient:
    """The client of the running loop: connections belong to the loop that made them."""
    loop = asyncio.get_running_loop()
    client = _clients.get(loop)
    if client is None:
        # The engine is ours and near: no proxy of the environment stands between.
        client = _clients[loop] = httpx.AsyncClient(timeout=_TIMEOUT, limits=_LIMITS, trust_env=False)
    return client


@asynccontextmanager
async def engine_stream(
    body: dict[str, Any], *, request_id: str
) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """The chunks of one answer, as the engine's JSON objects; ends after [DONE].

    Leaving the block closes the connection, which makes the engine drop the request. Raises UserFault when the
    engine refuses, is away, or stops before the end.
    """
    env = settings()
    try:
        async with engine_client().stream(
            "POST",
            f"{env.engine_url}/v1/chat/completions",
            content=orjson.dumps(body),
            headers={
                "authorization": f"Bearer {env.engine_key.get_secret_value()}",
                "content-type": "application/json",
                "x-request-id": request_id,
            },
        ) as response:
            if response.status_code != 200:
                raise engine_refusal(response.status_code, await _error(response))
            yield _chunks(response)
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
        raise engine_unreachable(error) from None
    except httpx.HTTPError as error:
        raise engine_silent(error) from None


async def _chunks(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in response.aiter_lines():
        if not line.startswith("data:"):
            continue
        data = line[5:].strip().encode()
        if data == _DONE:
            return
        chunk = orjson.loads(data)
        if "error" in chunk:
            raise engine_refusal(int(chunk["error"].get("code") or 500), chunk["error"])
        yield chunk
    raise engine_silent(None)


async def _error(response: httpx.Response) -> dict[str, Any]:
    """The `error` object of a refusal, or an empty one if it is not in that form."""
    body = b""
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > _MAX_ERROR_BYTES:
            break
    try:
        error = orjson.loads(body)["error"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return {}
    return error if isinstance(error, dict) else {}
