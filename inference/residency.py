"""EngineCore's ledger of what is in the workers' memory: the gate that every request with an adapter passes.

The seam for whoever resolves names (the API process) has three parts, and only the last is needed for correctness:
  1. verified files at a local path, and a LoRARequest (serving name, an id from a counter, that path);
  2. optionally `await engine.collective_rpc("attune_prefetch", args=(name, path))`, repeated until no worker answers
     {"state": "loading"}: reads in a background thread of the worker while other requests go on. A "failed" answer
     carries a code and a message for the user;
  3. the request itself. This gate holds it in the waiting queue until its adapter is in memory, loading it there and
     then if nobody runs; while others do, the workers read it in the background first, as in 2. What cannot be read
     ends with finish_reason "error".
Files must stay where they are until the prompt is done: a preempted request passes the gate again, and its adapter may
have been dropped in the meantime. If they are gone then, that request ends with an error, and nothing else does.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable
from enum import Enum
from typing import Any

from inference.memory import AdapterMemoryFull, IdTaken


class Verdict(Enum):
    READY = "ready"
    #: It is being read, or its turn to be read comes later; others run meanwhile.
    READING = "reading"
    #: It needs a place that others have.
    FULL = "full"
    FAILED = "failed"


class Residency:
    """Which adapters are resident; evicts the least recently used one that no prompt needs.

    `load(adapter, drop)` makes an adapter (a LoRARequest) resident in every worker and returns their answers, see
    AdapterMemory.load; `prefetch(adapter)` has them read it in the background, see there. `capacity` is vLLM's
    max_cpu_loras. An adapter's bytes are known once it is there, so a worker holds `max_bytes` and one adapter at most,
    and beside them what is in no file (put).
    """

    #: So many adapters are read ahead for requests in the queue, and no more than a worker has places for: more could
    #: push each other out before their turn.
    AHEAD = 4

    def __init__(
        self,
        *,
        capacity: int,
        max_bytes: int,
        load: Callable[[Any, list[int]], Iterable[dict[str, Any]]],
        prefetch: Callable[[Any], Iterable[dict[str, Any]]],
    ) -> None:
        self._capacity = capacity
        self._ahead = min(self.AHEAD, capacity)
        self._max_bytes = max_bytes
        self._load = load
        self._prefetch = prefetch
        self._names: OrderedDict[int, str] = OrderedDict()
        self._bytes: Counter[int] = Counter()
        self._kept: set[int] = set()
        self._pinned: set[int] = set()
        self._step = -1
        self._admitted: set[int] = set()
        self._reading = 0
        self._full = False

    def admit(self, adapter: Any, *, step: int, running: Collection[Any]) -> tuple[Verdict, str]:
        """Whether a waiting request with this adapter may be scheduled in this step, and if it failed, why.

        `running` are the scheduler's running requests; one whose `lora_request` is not None still needs its adapter.
        """
        if step != self._step:
            self._step, self._reading, self._full = step, 0, False
            self._admitted.clear()
        adapter_id, name = adapter.lora_int_id, adapter.lora_name
        if adapter_id in self._names:
            if self._names[adapter_id] != name:
                return Verdict.FAILED, IdTaken(adapter_id).message
            self._names.move_to_end(adapter_id)
            self._admitted.add(adapter_id)
            return Verdict.READY, ""
        if self._full:  # nobody gives a place back before the step ends
            return Verdict.FULL, ""
        drop = self._room(running)
        if drop is None:
            self._full = True
            return Verdict.FULL, ""
        if running and (verdict := self._read_ahead(adapter)) is not None:
            return verdict
        return self._make_resident(adapter, drop)

    def _read_ahead(self, adapter: Any) -> tuple[Verdict, str] | None:
        """Have the workers read an adapter, in no step's time; None once all have."""
        if self._reading == self._ahead:
            return Verdict.READING, ""
        answers = list(self._prefetch(adapter))
        for answer in answers:
            if answer["state"] == "failed":
                return Verdict.FAILED, answer["message"]
        if all(answer["state"] == "ready" for answer in answers):
            return None
        self._reading += 1
        return Verdict.READING, ""

    def _room(self, running: Collection[Any]) -> list[int] | None:
        """What to drop for one more adapter; None if everything is needed by a prompt that is not done."""
        excess = len(self._names) + 1 - self._capacity
        over = self._bytes.total() - self._max_bytes
        if excess <= 0 and over <= 0:
            return []
        needed = {request.lora_request.lora_int_id for request in running if request.lora_request}
        stay = needed | self._admitted | self._kept | self._pinned
        drop: list[int] = []
        for adapter_id in self._names:
            if adapter_id not in stay and (len(drop) < excess or over > 0):
                drop.append(adapter_id)
                over -= self._bytes[adapter_id]
        return drop if len(drop) >= excess and over <= 0 else None

    def _make_resident(self, adapter: Any, drop: list[int]) -> tuple[Verdict, str]:
        for adapter_id in drop:
            self._take_out(adapter_id)
        answers = list(self._load(adapter, drop))
        for answer in answers:
            if answer["state"] != "ready":
                return Verdict.FAILED, answer["message"]
        self._names[adapter.lora_int_id] = adapter.lora_name
        self._bytes[adapter.lora_int_id] = max(answer["bytes"] for answer in answers)
        self._admitted.add(adapter.lora_int_id)
        return Verdict.READY, ""

    def put(
        self,
        adapter_id: int,
        name: str,
        *,
        running: Collection[Any],
        write: Callable[[list[int]], list[dict[str, str]]],
    ) -> list[dict[str, str]]:
        """Have `write(drop)` put weights into every worker's memory under this id, which it may have had before.

        They are in no file, so they stay until forget(), and a place is left for everybody else's. Returns the workers'
        answers; where one failed nothing has changed. Raises AdapterMemoryFull.
        """
        drop = [] if adapter_id in self._names else self._room(running)
        if drop is None or len(self._kept | self._pinned | {adapter_id}) >= self._capacity:
            raise AdapterMemoryFull(
                f"All {self._capacity} places for adapters in memory are needed; raise cpu_slots (max_cpu_loras)."
            )
        answers = write(drop)
        if all(answer["state"] == "ready" for answer in answers):
            for dropped in drop:
                self._take_out(dropped)
            self._names[adapter_id] = name
            self._kept.add(adapter_id)
            del self._bytes[adapter_id]
        return answers

    def pin(self, adapter: Any, *, running: Collection[Any]) -> tuple[Verdict, str]:
        """Make an adapter resident now, and keep it until unpin() or forget(): READY, FULL or FAILED, and why.

        FULL too if what stays would leave no place or, with its bytes, no room for everybody else's.
        """
        adapter_id = adapter.lora_int_id
        if len(self._kept | self._pinned | {adapter_id}) >= self._capacity:
            return Verdict.FULL, ""
        if self._names.get(adapter_id) != adapter.lora_name:
            if adapter_id in self._names:
                return Verdict.FAILED, IdTaken(adapter_id).message
            drop = self._room(running)
            if drop is None:
                return Verdict.FULL, ""
            verdict, why = self._make_resident(adapter, drop)
            if verdict is not Verdict.READY:
                return verdict, why
        if sum(self._bytes[pinned] for pinned in self._pinned | {adapter_id}) > self._max_bytes:
            return Verdict.FULL, ""
        self._pinned.add(adapter_id)
        return Verdict.READY, ""

    def unpin(self, name: str) -> bool:
        """Let an adapter go when others need the room; whether it was pinned."""
        ids = {adapter_id for adapter_id in self._pinned if self._names[adapter_id] == name}
        self._pinned -= ids
        return bool(ids)

    def forget(self, name: str) -> list[int]:
        """Take an adapter out of the ledger (its worker-side copies are removed by attune_remove)."""
        ids = [adapter_id for adapter_id, known in self._names.items() if known == name]
        for adapter_id in ids:
            self._take_out(adapter_id)
        return ids

    def _take_out(self, adapter_id: int) -> None:
        del self._names[adapter_id]
        self._kept.discard(adapter_id)
        self._pinned.discard(adapter_id)
        del self._bytes[adapter_id]
