"""vLLM's model registry of the API server, so that every request for an adapter passes our resolver.

Stock vLLM asks a resolver once for each name, remembers the answer for ever, loads on the engine's loop, and turns
every failure into "does not exist". Here a request gets its adapter through three tiers (disk, memory, slot), holds
it until it ends, and an adapter that cannot be had fails the request that asked for it, saying why.
"""

import asyncio
import contextlib
import logging
from functools import partial
from typing import Any

from vllm.lora.request import LoRARequest
from vllm.v1.engine.exceptions import EngineDeadError

from adapters_store.errors import AdapterMissing
from adapters_store.names import ServingName
from inference import adapter_metrics as metrics
from inference.adapter_sources import AdapterSource
from inference.compat_pin import pin_adapter, unpin_adapter
from inference.compat_removal import remove_adapter
from inference.memory_places import MemoryPlaces
from inference.prefetch import NotLoaded, Prefetcher
from inference.request_scope import RequestScope, current_scope
from inference.resolver import AdapterResolver
from inference.settings import adapter_settings

logger = logging.getLogger("vllm.attune")

#: The workers are asked for their figures no more often, whoever reads /metrics.
_MEASURE_SECONDS = 1


class ServedAdapters:
    """The adapters of one API server. Made when the first is asked for, on the server's event loop."""

    def __init__(self, engine_client: Any) -> None:
        self._engine = engine_client
        lora = engine_client.vllm_config.lora_config
        self._base_model: str = engine_client.model_config.model
        settings = adapter_settings()
        self._resolver = AdapterResolver(settings, max_rank=lora.max_lora_rank)
        self._places = MemoryPlaces(slots=lora.max_cpu_loras, wait_seconds=settings.adapter_wait_seconds)
        self._prefetcher = Prefetcher(engine_client, remember=lora.max_cpu_loras)
        self._pinned: set[str] = set()
        self._mending: dict[str, asyncio.Future[None]] = {}
        self._measuring: asyncio.Future[None] | None = None
        self._measured: dict[str, Any] = {}

    async def hold(self, scope: RequestScope, model: str) -> LoRARequest:
        """The adapter that `model` names, verified, on disk until `scope` closes and read by the workers.

        Raises AdapterError; nothing that could fail for the adapter's sake is left to the engine's step.
        """
        source, name = await self._located(model)
        request = await self._resolver.bring_to_disk(scope, self._base_model, model, source, name)
        await self._places.take(request.lora_name)
        # A prefill adapter is needed in memory until its prompt is done, an all-position one until the end.
        release = partial(self._places.give_back, request.lora_name)
        (scope.on_end if name.position == "all" else scope.on_first_byte)(release)
        if (mending := self._mending.get(request.lora_name)) is not None:
            await asyncio.shield(mending)
        try:
            await self._prefetcher.ready(request)
        except NotLoaded as error:
            if not error.damaged:
                raise
            key = str(name)
            if key not in self._mending:
                mending = self._mending[key] = asyncio.ensure_future(self._mend(scope, model, source, name))
                mending.add_done_callback(
                    lambda done: (self._mending.pop(key), done.cancelled() or done.exception())
                )
            await asyncio.shield(self._mending[key])
        return request

    async def _mend(self, scope: RequestScope, model: str, source: AdapterSource, name: ServingName) -> None:
        """Fetch a damaged copy once more and have the workers read it, for all requests that came upon it.

        Nobody else reads the adapter meanwhile. Raises AdapterError: the source is damaged too, or away, or the
        workers cannot read the new copy either.
        """
        logger.warning(
            "The copy of the adapter %s… in the disk cache is damaged: fetching it again.", name.digest[:12]
        )
        await self._resolver.forget(name)
        await self._prefetcher.ready(
            await self._resolver.bring_to_disk(scope, self._base_model, model, source, name)
        )

    def measure(self) -> None:
        """Have the metrics of memory and slots brought up to date, soon: the engine answers between two steps."""
        if self._measuring is None or self._measuring.done():
            self._measuring = asyncio.ensure_future(self._measure())

    async def _measure(self) -> None:
        with contextlib.suppress(EngineDeadError):
            status = (await self._engine.collective_rpc("attune_status"))[0]
            metrics.of_worker(status, self._measured)
            self._measured = status
        await asyncio.sleep(_MEASURE_SECONDS)

    async def pin(self, scope: RequestScope, model: str) -> str:
        """Keep an adapter in memory until it is unpinned or deleted, or the engine ends; returns its name.

        Raises AdapterError, adapter_memory_full if what is pinned would leave no room for others.
        """
        # What is taken to be in memory may have gone, and the engine would read it between two steps.
        _, name = await self._located(model)
        self._prefetcher.forget(str(name))
        request = await self.hold(scope, model)
        answer = await pin_adapter(self._engine, request)
        if answer["state"] == "failed":
            raise NotLoaded(answer["code"], answer["message"])
        if request.lora_name not in self._pinned:
            self._pinned.add(request.lora_name)
            self._places.share(request.lora_name)
        return request.lora_name

    async def unpin(self, model: str) -> tuple[str, bool]:
        """Let an adapter go when others need the room; its name, and whether it was pinned."""
        _, name = await self._located(model)
        was_pinned = await unpin_adapter(self._engine, str(name))
        self._give_back_pinned(str(name))
        return str(name), was_pinned

    def _give_back_pinned(self, name: str) -> None:
        if name in self._pinned:
            self._pinned.remove(name)
            self._places.give_back(name)

    async def delete(self, model: str) -> dict[str, Any]:
        """Forget an adapter in every tier; returns its name and what was removed where."""
        _, name = await self._located(model)
        self._prefetcher.forget(str(name))
        on_disk = await self._resolver.forget(name)
        removed = await remove_adapter(self._engine, str(name))
        if not removed["in_use"]:
            self._give_back_pinned(str(name))
        return {"id": str(name), "deleted": True, "disk": on_disk, **removed}

    async def _located(self, model: str) -> tuple[AdapterSource, ServingName]:
        located = await self._resolver.locate(model)
        if located is None:
            raise AdapterMissing(f"The model {model[:200]} does not exist.")
        return located


def served_adapters(models: Any) -> ServedAdapters:
    """The one that belongs to an OpenAIServingModels."""
    found: ServedAdapters | None = getattr(models, "attune_adapters", None)
    if found is None:
        found = models.attune_adapters = ServedAdapters(models.engine_client)
    return found


def measure(models: Any) -> None:
    """ServedAdapters.measure, where an adapter has been asked for: anyone may read /metrics, and nobody waits there."""
    found: ServedAdapters | None = getattr(models, "attune_adapters", None)
    if found is not None:
        found.measure()


async def resolve_lora(models: Any, lora_name: str) -> LoRARequest:
    """In place of OpenAIServingModels.resolve_lora (compat_http); AdapterErrors go up to AdapterScope."""
    scope = current_scope()
    if (known := scope.adapters.get(lora_name)) is not None:
        return known
    request = await served_adapters(models).hold(scope, lora_name)
    scope.adapters[lora_name] = request
    return request
