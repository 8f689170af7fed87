"""One answer on its way: from the engine, through a short queue, to whoever reads it.

A task of its own owns the engine's connection and the usage row, so that both are settled whatever becomes of the
reader: one that leaves, one that reads too slowly, one that never begins.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import structlog

from webapp.chat.engine import engine_stream
from webapp.chat.engine_errors import AnswerTimeout, EngineFailed, ReaderTooSlow
from webapp.config.faults import UserFault

log = structlog.get_logger(__name__)

Chunk = dict[str, Any]

#: Chunks that may wait for a reader, and the seconds it may leave the queue full.
_QUEUE = 64
_READER_SECONDS = 60
#: The longest that one answer may take, in seconds.
_ANSWER_SECONDS = 900
CLIENT_CLOSED = 499


@dataclass
class Tally:
    """What a request used: counts and times, as far as it came."""

    status: int = 200
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    first_token_seconds: float | None = None
    seconds: float = 0.0
    _by_choice: dict[int, int] = field(default_factory=dict)

    def count(self, chunk: Chunk, elapsed: float) -> None:
        """Add what a chunk says; the engine sends totals a choice, so a later chunk replaces an earlier one."""
        usage = chunk.get("usage") or {}
        self.input_tokens = max(self.input_tokens, usage.get("prompt_tokens") or 0)
        self.cached_tokens = (usage.get("prompt_tokens_details") or {}).get(
            "cached_tokens"
        ) or self.cached_tokens
        produced = usage.get("completion_tokens") or 0
        for choice in chunk.get("choices", ()):
            self._by_choice[choice["index"]] = produced
        if self.first_token_seconds is None and chunk.get("choices") and produced:
            self.first_token_seconds = elapsed
        self.output_tokens = sum(self._by_choice.values())

    def usage(self, *, cached: bool) -> dict[str, Any]:
        """OpenAI's usage object, with or without what came from the prefix cache."""
        counted = {
            "prompt_tokens": self.input_tokens,
            "completion_tokens": self.output_tokens,
            "total_tokens": self.input_tokens + self.output_tokens,
        }
        return counted | ({"prompt_tokens_details": {"cached_tokens": self.cached_tokens}} if cached else {})


class Answer:
    """Start it, then read `chunks()`; `record` is awaited once, at the end, with the final tally."""

    def __init__(
        self, body: dict[str, Any], *, request_id: str, record: Callable[[Tally], Awaitable[None]]
    ) -> None:
        self.tally = Tally()
        self._body = body
        self._request_id = request_id
        self._record = record
        self._queue: asyncio.Queue[Chunk | UserFault | None] = asyncio.Queue(_QUEUE)
        self._task: asyncio.Task[None] | None = None
        self._settling = False
        self._left = False
        self._began = time.perf_counter()

    async def start(self) -> None:
        """Return once the engine has taken the request; raises UserFault if it does not."""
        accepted: asyncio.Future[UserFault | None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(accepted))
        _running.add(self._task)
        self._task.add_done_callback(_running.discard)
        try:
            fault = await asyncio.shield(accepted)
        except asyncio.CancelledError:
            self.leave()
            raise
        if fault is not None:
            raise fault

    async def chunks(self) -> AsyncIterator[Chunk]:
        """The engine's chunks; raises UserFault if the answer breaks off. Leaving early ends it upstream too."""
        try:
            while (item := await self._queue.get()) is not None:
                if isinstance(item, UserFault):
                    raise item
                yield item
        finally:
            self.leave()

    def leave(self) -> None:
        """The reader is gone. Harmless at any time; a row that is being written is written to the end."""
        self._left = True
        if self._task is not None and not self._settling:
            self._task.cancel()

    async def _run(self, accepted: "asyncio.Future[UserFault | None]") -> None:
        ending: UserFault | None = None
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._relay(accepted)
        except UserFault as fault:
            ending = fault
        except TimeoutError:
            ending = AnswerTimeout(
                "The answer took too long. Ask for a smaller max_tokens.", code="answer_timeout"
            )
        except asyncio.CancelledError:
            self.tally.status = CLIENT_CLOSED
        except Exception:
            log.exception("chat failed")
            ending = EngineFailed("Something went wrong on our side. Try again.", code="internal_error")
        self._settling = True
        if ending is not None:
            self.tally.status = ending.status
        self.tally.seconds = time.perf_counter() - self._began
        # Before the reader hears the end: whoever has an answer finds it counted.
        await self._record(self.tally)
        if not accepted.done():
            accepted.set_result(ending)
        elif not self._left and not await self._put(ending):
            # A reader that wakes up after all must not take what it has for the whole.
            self._queue.get_nowait()
            self._queue.put_nowait(_too_slow())

    async def _relay(self, accepted: "asyncio.Future[UserFault | None]") -> None:
        async with engine_stream(self._body, request_id=self._request_id) as chunks:
            accepted.set_result(None)
            async for chunk in chunks:
                self.tally.count(chunk, time.perf_counter() - self._began)
                if not await self._put(chunk):
                    raise _too_slow()

    async def _put(self, item: Chunk | UserFault | None) -> bool:
        """False if the reader left the queue full for too long."""
        try:
            async with asyncio.timeout(_READER_SECONDS):
                await self._queue.put(item)
        except TimeoutError:
            return False
        return True


def _too_slow() -> UserFault:
    return ReaderTooSlow(
        "The answer was not read for a minute, so it was ended. Send it again.", code="reader_too_slow"
    )


#: The loop holds tasks weakly; these must live until they have written their row.
_running: set["asyncio.Task[None]"] = set()
