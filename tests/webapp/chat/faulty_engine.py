"""A stand-in for the engine that fails on purpose: what a healthy vLLM never does, and a killed one does at random.

It speaks vLLM 0.32's stream (continuous usage with every chunk), as recorded from one.
"""

import asyncio
import json
import socket
import threading
import time
from typing import Any, Self

import uvicorn


class Killed(Exception):
    """Raised in the middle of a response: the connection closes without an end, as when the process is killed."""


class FaultyEngine:
    """Set the attributes before a request; read `bodies`, `aborted` and `running` after it."""

    def __init__(self) -> None:
        self.words = ["Hello", " there", ", friend", "."]
        #: Seconds between words; a test that wants to leave early makes it long.
        self.pause = 0.0
        #: After so many words: "kill" the process, send an "error" event, "end" without [DONE].
        self.fault: str | None = None
        self.fault_after = 2
        #: Refuse with this status and error object instead.
        self.refusal: tuple[int, dict[str, Any]] | None = None
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.aborted = 0
        self.running = 0
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        config = uvicorn.Config(
            self._app, host="127.0.0.1", port=self.port, log_config=None, lifespan="off", interface="asgi3"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        deadline = time.monotonic() + 10
        while not self._server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        assert self._server.started
        return self

    def __exit__(self, *_: object) -> None:
        self._server.force_exit = self._server.should_exit = True
        self._thread.join(5)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        asked = json.loads(body)
        self.bodies.append(asked)
        self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        if self.refusal is not None:
            status, error = self.refusal
            await _start(send, status, b"application/json")
            await send({"type": "http.response.body", "body": json.dumps({"error": error}).encode()})
            return
        self.running += 1
        talking = asyncio.create_task(self._talk(asked, send))
        leaving = asyncio.create_task(receive())
        try:
            await asyncio.wait({talking, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not talking.done():
                self.aborted += 1
                talking.cancel()
            else:
                talking.result()
        finally:
            leaving.cancel()
            self.running -= 1

    async def _talk(self, asked: dict[str, Any], send: Any) -> None:
        await _start(send, 200, b"text/event-stream")
        choices = range(asked.get("n", 1))
        for index in choices:
            await _event(send, _chunk(asked, index, 0, {"role": "assistant", "content": ""}))
        for count, word in enumerate(self.words, start=1):
            await asyncio.sleep(self.pause)
            for index in choices:
                await _event(send, _chunk(asked, index, count, {"content": word}))
            if self.fault is not None and count == self.fault_after:
                if self.fault == "kill":
                    raise Killed
                if self.fault == "error":
                    error = {"message": "secret detail at 0x7f", "type": "InternalServerError", "code": 500}
                    await _event(send, {"error": error})
                    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})
                else:
                    await send({"type": "http.response.body", "body": b""})
                return
        for index in choices:
            await _event(send, _chunk(asked, index, len(self.words), {"content": ""}, finish_reason="stop"))
        total = len(self.words) * len(choices)
        usage = _usage(total) | {"prompt_tokens_details": {"cached_tokens": 16}}
        await _event(send, _chunk(asked, 0, 0, {}) | {"choices": [], "usage": usage})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


def _usage(completion: int) -> dict[str, Any]:
    return {"prompt_tokens": 20, "completion_tokens": completion, "total_tokens": 20 + completion}


def _chunk(
    asked: dict[str, Any], index: int, tokens: int, delta: dict[str, str], finish_reason: str | None = None
) -> dict[str, Any]:
    logprobs = None
    if asked.get("logprobs") and delta.get("content"):
        token = {"token": delta["content"], "logprob": -0.5, "bytes": list(delta["content"].encode())}
        logprobs = {"content": [token | {"top_logprobs": [token]}]}
    choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
    return {
        "id": "chatcmpl-engine",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": asked["model"],
        "choices": [choice | {"stop_reason": None, "token_ids": [7]}],
        "usage": _usage(tokens),
        "prompt_token_ids": [1, 2, 3],
    }


async def _start(send: Any, status: int, content_type: bytes) -> None:
    await send(
        {"type": "http.response.start", "status": status, "headers": [(b"content-type", content_type)]}
    )


async def _event(send: Any, data: dict[str, Any]) -> None:
    body = f"data: {json.dumps(data)}\n\n".encode()
    await send({"type": "http.response.body", "body": body, "more_body": True})
