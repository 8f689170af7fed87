"""A bounded folder of adapters on local disk, least recently used first out, never one that is in use."""

import os
import shutil
import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from adapters_store.errors import CacheFull

#: Fills an empty folder with an adapter's verified files, or raises AdapterError.
Fetch = Callable[[Path], None]


class AdapterCache:
    """Thread-safe; one owner process a folder. What an earlier process left complete is taken over at start.

    Names are serving names, possibly tenant-qualified: `/` becomes a sub-folder, nothing else of a name is
    interpreted, and callers pass only names that adapters_store.names.parse_name accepted.
    """

    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        self._folder = folder
        self._partial = folder / "partial"
        self._max_bytes = max_bytes
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._leases: Counter[str] = Counter()
        self._fetching: weakref.WeakValueDictionary[str, threading.Lock] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        shutil.rmtree(self._partial, ignore_errors=True)
        self._partial.mkdir(parents=True)
        found = sorted((folder / "adapters").glob("**/manifest.json"), key=lambda path: path.stat().st_mtime)
        for manifest in found:
            name = str(manifest.parent.relative_to(folder / "adapters"))
            self._sizes[name] = _bytes_in(manifest.parent)
        with self._lock:
            self._make_room(0)

    @contextmanager
    def lease(self, name: str, fetch: Fetch) -> Iterator[Path]:
        """The adapter's folder, fetched if it is not here; it stays until the block ends.

        Concurrent calls for one name fetch once. Raises what `fetch` raises, or CacheFull.
        """
        self.acquire(name, fetch)
        try:
            yield self.path(name)
        finally:
            self.release(name)

    def acquire(self, name: str, fetch: Fetch) -> Path:
        """As `lease`, for holders that end elsewhere: every acquire needs its release."""
        with self._lock:
            fetching = self._fetching.setdefault(name, threading.Lock())
        with fetching:
            with self._lock:
                if name in self._sizes:
                    return self._held(name)
            partial = self._partial / name.replace("/", "_")
            partial.mkdir(parents=True)
            try:
                fetch(partial)
                _to_disk(partial)  # or a power cut leaves a whole name over half of its bytes, for good
                with self._lock:
                    self._make_room(size := _bytes_in(partial))
                    self.path(name).parent.mkdir(parents=True, exist_ok=True)
                    partial.rename(self.path(name))
                    self._sizes[name] = size
                    return self._held(name)
            finally:
                shutil.rmtree(partial, ignore_errors=True)

    def release(self, name: str) -> None:
        with self._lock:
            self._leases[name] -= 1
            if self._leases[name] <= 0:
                del self._leases[name]

    def remove(self, name: str) -> bool:
        """Forget an adapter now, in use or not (it was deleted); whether it was here."""
        with self._lock:
            here = self._sizes.pop(name, None) is not None
            shutil.rmtree(self.path(name), ignore_errors=True)
            return here

    def path(self, name: str) -> Path:
        return self._folder / "adapters" / name

    @property
    def bytes_used(self) -> int:
        with self._lock:
            return sum(self._sizes.values())

    def __contains__(self, name: str) -> bool:
        with self._lock:
            return name in self._sizes

    def _held(self, name: str) -> Path:
        self._leases[name] += 1
        self._sizes.move_to_end(name)
        return self.path(name)

    def _make_room(self, size: int) -> None:
        """Evict until `size` more bytes fit."""
        for name in [name for name in self._sizes if name not in self._leases]:
            if sum(self._sizes.values()) + size <= self._max_bytes:
                return
            del self._sizes[name]
            shutil.rmtree(self.path(name), ignore_errors=True)
        if sum(self._sizes.values()) + size > self._max_bytes:
            raise CacheFull(
                "Every adapter in the disk cache is in use. Retry shortly, or give the cache more bytes."
            )


def _to_disk(folder: Path) -> None:
    """Returns when the folder's files, and their names in it, would survive a power cut."""
    for path in [*folder.iterdir(), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
