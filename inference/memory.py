"""A worker's adapters in memory: read ahead of need, kept until told otherwise, so that no step ever reads a file.

Two tiers. `staged` is best effort: prefetch() reads in a background thread, the oldest are forgotten when there are
too many. `resident` is a promise: what load() has returned for stays, ready to be paged into a slot, until a later
load() drops it. EngineCore (inference.residency) decides what is resident, and admits a request only when its adapter
is; whatever is wrong with an adapter's files is therefore found before any step, and fails one request.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from adapters_store.errors import AdapterError


@dataclass(frozen=True)
class Resident:
    name: str
    #: Where it was read, "" if nowhere: a name that is no digest may come again with another folder.
    path: str
    weights: Any
    bytes: int


class AdapterMemory:
    """`read(name, path)` returns weights that fit this worker's model, or raises; called in any thread.

    `size(weights)` is in bytes. `capacity` adapters and `staged_bytes` are what is staged at most; what is resident is
    bounded by who asks for it.
    """

    def __init__(
        self,
        *,
        read: Callable[[str, str], Any],
        size: Callable[[Any], int],
        capacity: int,
        staged_bytes: int,
    ) -> None:
        self._read = read
        self._size = size
        self._capacity = capacity
        self._staged_bytes = staged_bytes
        #: By name and path.
        self._staged: OrderedDict[tuple[str, str], Future[Resident]] = OrderedDict()
        self._resident: dict[int, Resident] = {}
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="attune-adapters")

    def prefetch(self, name: str, path: str) -> dict[str, str]:
        """Start reading if nobody has; returns {"state": "ready" | "loading" | "failed", "code", "message"} at once.

        A failure is reported once and then forgotten, so that asking again tries again.
        """
        if self._shared(name, path) is not None:
            return {"state": "ready"}
        future = self._staged.get((name, path))
        if future is None:
            future = self._staged[name, path] = self._reader.submit(self._fetch, name, path)
            self._forget_oldest()
        self._staged.move_to_end((name, path))
        if not future.done():
            return {"state": "loading"}
        error = future.exception()
        if error is None:
            return {"state": "ready"}
        del self._staged[name, path]
        return failure(error)

    def load(self, adapter_id: int, name: str, path: str, drop: Collection[int]) -> dict[str, Any]:
        """Make an adapter resident, after dropping others; {"state": "ready", "bytes"} or {"state": "failed", ...}.

        Waits for a prefetch under way, reads here and now if there was none and no other id has this adapter.
        """
        same = self._shared(name, path)
        for dropped in drop:
            self._resident.pop(dropped, None)
        resident = self._resident.get(adapter_id)
        if resident is not None:
            return ready(resident) if resident.name == name else failure(IdTaken(adapter_id))
        future = self._staged.pop((name, path), None)
        try:
            resident = same or (self._fetch(name, path) if future is None else future.result())
        except Exception as error:
            return failure(error)
        self._resident[adapter_id] = resident
        return ready(resident)

    def get(self, adapter_id: int, name: str) -> Any | None:
        """The weights of a resident adapter, None if it is not; raises IdTaken if the id is another's."""
        resident = self._resident.get(adapter_id)
        if resident is None:
            return None
        if resident.name != name:
            raise IdTaken(adapter_id)
        return resident.weights

    def resident(self, adapter_id: int) -> Any | None:
        """The weights that an id stands for now, whatever their name."""
        resident = self._resident.get(adapter_id)
        return None if resident is None else resident.weights

    def put(self, adapter_id: int, name: str, weights: Any, drop: Collection[int]) -> None:
        """Make weights resident that are in no file, in place of what had the id, after dropping others."""
        for dropped in drop:
            self._resident.pop(dropped, None)
        self._resident[adapter_id] = Resident(name, "", weights, self._size(weights))

    def remove(self, name: str) -> dict[str, int]:
        """Forget every copy of an adapter; returns how many there were in each tier."""
        ids = [adapter_id for adapter_id, resident in self._resident.items() if resident.name == name]
        for adapter_id in ids:
            del self._resident[adapter_id]
        staged = [key for key in self._staged if key[0] == name]
        for key in staged:
            del self._staged[key]
        return {"resident": len(ids), "staged": len(staged)}

    def names(self) -> set[str]:
        return {resident.name for resident in self._resident.values()} | {name for name, _ in self._staged}

    def figures(self) -> dict[str, int]:
        """How many adapters are resident and their bytes; the same of those that are staged and read."""
        ahead = self._read_ahead()
        return {
            "resident": len(self._resident),
            "bytes": sum(resident.bytes for resident in self._resident.values()),
            "ahead": len(ahead),
            "ahead_bytes": sum(future.result().bytes for future in ahead),
        }

    def _read_ahead(self) -> list[Future[Resident]]:
        return [future for future in self._staged.values() if future.done() and not future.exception()]

    def _fetch(self, name: str, path: str) -> Resident:
        weights = self._read(name, path)
        return Resident(name, path, weights, self._size(weights))

    def _shared(self, name: str, path: str) -> Resident | None:
        return next((one for one in self._resident.values() if (one.name, one.path) == (name, path)), None)

    def _forget_oldest(self) -> None:
        read = self._read_ahead()
        over = sum(future.result().bytes for future in read) - self._staged_bytes
        while len(self._staged) > self._capacity or (over > 0 and len(self._staged) > 1):
            _, future = self._staged.popitem(last=False)
            if future in read:
                over -= future.result().bytes
            else:
                future.cancel()


class IdTaken(AdapterError):
    code = "adapter_id_taken"

    def __init__(self, adapter_id: int) -> None:
        super().__init__(f"The adapter id {adapter_id} already belongs to an adapter of another name.")


class AdapterMemoryFull(AdapterError):
    """Every place in CPU adapter memory belongs to a prompt in flight, or to weights that are in no file."""

    code = "adapter_memory_full"


def ready(resident: Resident) -> dict[str, Any]:
    """A worker's answer, {"state": "ready", "bytes"}: what the adapter takes of this worker's memory."""
    return {"state": "ready", "bytes": resident.bytes}


def failure(error: BaseException) -> dict[str, str]:
    """A worker's answer, {"state": "failed", "code", "message"}.

    Our own messages are for users. The operating system's name paths, which hold tenants' ids: of them stays what went
    wrong, and of anything else its type and its text.
    """
    if isinstance(error, AdapterError):
        return {"state": "failed", "code": error.code, "message": error.message}
    why = error.strerror if isinstance(error, OSError) else str(error)
    return {"state": "failed", "code": "adapter_unreadable", "message": f"{type(error).__name__}: {why}"}
