"""Adapters reach the workers before their request does: read off the step's path, while other requests go on."""

import asyncio
from collections import OrderedDict
from typing import Any

from vllm.lora.request import LoRARequest

from adapters_store.errors import AdapterCorrupt, AdapterError, AdapterMissing
from inference import adapter_metrics as metrics

#: A read takes tens of milliseconds; asking costs the engine's loop less than one.
_POLL_SECONDS = 0.01


class NotLoaded(AdapterError):
    """A worker could not read what was verified on disk; carries the worker's own code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def damaged(self) -> bool:
        """Whether the copy on disk is not, or no more, what it was when it was fetched."""
        return self.code in (AdapterCorrupt.code, AdapterMissing.code)


class Prefetcher:
    """`remember` names are taken to be in memory without asking, which would cost each request the wait for a step.

    Being wrong, as when bytes and not places bound the memory, costs that request the same wait and nobody else: then
    EngineCore has the workers read its adapter in the background, and admits it when they have.
    """

    def __init__(self, engine_client: Any, *, remember: int) -> None:
        self._engine = engine_client
        self._remember = remember
        self._ready: OrderedDict[str, None] = OrderedDict()
        self._reading: dict[str, asyncio.Future[None]] = {}

    async def ready(self, request: LoRARequest) -> None:
        """Return when every worker has read the adapter; raises NotLoaded with what is wrong."""
        if request.lora_name in self._ready:
            metrics.LOOKUPS.labels("memory", "hit").inc()
        else:
            metrics.LOOKUPS.labels("memory", "miss").inc()
            with metrics.LOAD_SECONDS.labels("memory").time():
                await asyncio.shield(self._shared_read(request))
        self._ready[request.lora_name] = None
        self._ready.move_to_end(request.lora_name)
        if len(self._ready) > self._remember:
            self._ready.popitem(last=False)

    def forget(self, name: str) -> None:
        self._ready.pop(name, None)

    def _shared_read(self, request: LoRARequest) -> "asyncio.Future[None]":
        """One reading for all who wait for an adapter: workers say once that one failed, to whoever asks next."""
        name = request.lora_name
        if name not in self._reading:
            reading = self._reading[name] = asyncio.ensure_future(self._read(request))
            reading.add_done_callback(
                lambda done: (self._reading.pop(name), done.cancelled() or done.exception())
            )
        return self._reading[name]

    async def _read(self, request: LoRARequest) -> None:
        while True:
            answers = await self._engine.collective_rpc(
                "attune_prefetch", args=(request.lora_name, request.lora_path)
            )
            for answer in answers:
                if answer["state"] == "failed":
                    raise NotLoaded(answer["code"], answer["message"])
            if all(answer["state"] == "ready" for answer in answers):
                return
            await asyncio.sleep(_POLL_SECONDS)
