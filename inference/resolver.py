"""From a model's name to verified adapter files on this machine's disk.

`<tenant>/ap-<digest>` comes from S3, a bare name or a folder's name from ATTUNE_ADAPTER_DIR. Every request comes
through here (inference.http_models), so what is refused, deleted or evicted is so for the next request, and the files
of a request in flight are leased until it ends.
"""

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from vllm.lora.request import LoRARequest

from adapters_store.cache import AdapterCache
from adapters_store.manifest import MANIFEST_FILE
from adapters_store.names import ServingName
from inference import adapter_metrics as metrics
from inference.adapter_checks import ServedBase, model_folder, served_base
from inference.adapter_sources import AdapterSource, FolderSource, StorageSource
from inference.request_scope import RequestScope
from inference.settings import AdapterSettings

#: More than any engine holds in memory, few enough to cost nothing.
IDS_KEPT = 100_000

_T = TypeVar("_T")


class AdapterResolver:
    """The adapters that one engine can serve. `max_rank` is what its buffers are made for."""

    def __init__(self, settings: AdapterSettings, *, max_rank: int) -> None:
        self.disk = DiskTier(settings)
        self._max_rank = max_rank
        self._ids: OrderedDict[str, int] = OrderedDict()
        self._next_id = itertools.count(1)
        # Apart, so that slow downloads never keep an adapter waiting that is here already.
        self._lookups = ThreadPoolExecutor(max_workers=4, thread_name_prefix="adapter-lookup")
        self._downloads = ThreadPoolExecutor(max_workers=16, thread_name_prefix="adapter-download")
        self._downloading: dict[str, asyncio.Future[Path]] = {}
        self._bases: dict[str, ServedBase] = {}

    async def locate(self, model: str) -> tuple[AdapterSource, ServingName] | None:
        """Which source would have the adapter, and its canonical name; no word yet on whether it exists."""
        return await self._in(self._lookups, lambda: self.disk.locate(model))

    async def bring_to_disk(
        self, scope: RequestScope, base_model: str, model: str, source: AdapterSource, name: ServingName
    ) -> LoRARequest:
        """Fetch and verify unless the disk has it; raises AdapterError. Ids are counted, never made from digests:
        short digests collide, and the workers refuse an id that they know under another name."""

        def acquire() -> Path:
            return self.disk.acquire(model, source, name, self._base(base_model))

        path = await self._acquired(scope, str(name), acquire)
        return LoRARequest(str(name), self._id_of(str(name)), str(path), base_model_name=base_model)

    async def forget(self, name: ServingName) -> bool:
        """Remove the files of a deleted or damaged adapter; whether they were here."""
        return await self._in(self._lookups, lambda: self.disk.cache.remove(str(name)))

    async def _acquired(self, scope: RequestScope, name: str, acquire: Callable[[], Path]) -> Path:
        """What `acquire` returns, its lease bound to the scope; requests for a missing adapter share a download."""
        here = self.disk.has(name)
        # One that is done and still listed was emptied from the disk since; waiting for it would be no pause, for ever.
        while not here and (other := self._downloading.get(name)) is not None and not other.done():
            await asyncio.shield(other)
            here = self.disk.has(name)
        acquiring = asyncio.ensure_future(self._in(self._lookups if here else self._downloads, acquire))
        # If the request is cancelled meanwhile, the lease must still find its way back.
        acquiring.add_done_callback(lambda done: self._lease_to(scope, name, done))
        if not here:
            self._downloading[name] = acquiring
            acquiring.add_done_callback(lambda done: self._downloaded(name, done))
        return await asyncio.shield(acquiring)

    def _downloaded(self, name: str, done: "asyncio.Future[Path]") -> None:
        if self._downloading.get(name) is done:
            del self._downloading[name]

    def _id_of(self, name: str) -> int:
        """A name keeps its id while it is among the last IDS_KEPT; the engine forgets it long before."""
        if name not in self._ids:
            self._ids[name] = next(self._next_id)
            if len(self._ids) > IDS_KEPT:
                self._ids.popitem(last=False)
        self._ids.move_to_end(name)
        return self._ids[name]

    def _lease_to(self, scope: RequestScope, name: str, done: "asyncio.Future[Path]") -> None:
        if not done.cancelled() and done.exception() is None:
            scope.on_end(lambda: self.disk.cache.release(name))

    async def _in(self, threads: ThreadPoolExecutor, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(threads, work)

    def _base(self, model: str) -> ServedBase:
        if model not in self._bases:
            self._bases[model] = served_base(model_folder(model), max_rank=self._max_rank)
        return self._bases[model]


class DiskTier:
    """The sources and the bounded folder that they fill. Blocking and thread-safe."""

    def __init__(self, settings: AdapterSettings) -> None:
        folder = settings.adapter_cache_dir.expanduser()
        self.cache = AdapterCache(folder, max_bytes=settings.adapter_cache_bytes)
        self._sources: list[AdapterSource] = [FolderSource(settings.own_adapters_dir)]
        if settings.adapter_dir is not None:
            self._sources.append(FolderSource(settings.adapter_dir))
        if settings.uses_s3:
            self._sources.append(_storage(settings))

    def locate(self, model: str) -> tuple[AdapterSource, ServingName] | None:
        for source in self._sources:
            if (name := source.name_of(model)) is not None:
                return source, name
        return None

    def has(self, name: str) -> bool:
        """Whether the adapter's files are here; notices when someone emptied the folder behind our back."""
        if name in self.cache and not (self.cache.path(name) / MANIFEST_FILE).exists():
            self.cache.remove(name)
        return name in self.cache

    def acquire(self, model: str, source: AdapterSource, name: ServingName, base: ServedBase) -> Path:
        """The adapter's folder, leased; every acquire needs its release."""
        key = str(name)
        metrics.LOOKUPS.labels("disk", "hit" if self.has(key) else "miss").inc()

        def fetch(folder: Path) -> None:
            with metrics.LOAD_SECONDS.labels("disk").time():
                source.fetch(model, name, folder, base)

        path = self.cache.acquire(key, fetch)
        metrics.DISK_BYTES.set(self.cache.bytes_used)
        return path


def _storage(settings: AdapterSettings) -> StorageSource:
    from adapters_store.s3 import ObjectStore

    assert settings.s3_bucket is not None
    assert settings.s3_access_key is not None
    assert settings.s3_secret_key is not None
    return StorageSource(
        ObjectStore(
            endpoint_url=settings.s3_endpoint_url,
            bucket=settings.s3_bucket,
            access_key=settings.s3_access_key,
            secret_key=settings.s3_secret_key.get_secret_value(),
            region=settings.s3_region,
        )
    )
