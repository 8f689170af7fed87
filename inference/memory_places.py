"""A bound on the distinct adapters that the engine may be asked to hold in memory at once.

EngineCore (inference.residency) decides what is in memory and never gives away what a prompt needs; here, in the API
process, requests wait for their turn, so that overload shows as a short wait and then a 503, not as thrashing.
"""

import asyncio
from collections import Counter, deque

from inference import adapter_metrics as metrics
from inference.memory import AdapterMemoryFull


class MemoryPlaces:
    """`slots` places; requests for one adapter share its place. First come, first served. Not thread-safe.

    While anybody waits nobody overtakes, not even for an adapter that has a place: it would never be given back.
    """

    def __init__(self, *, slots: int, wait_seconds: float) -> None:
        self._slots = slots
        self._wait_seconds = wait_seconds
        self._holders: Counter[str] = Counter()
        self._queue: deque[tuple[str, asyncio.Future[None]]] = deque()
        metrics.PLACES.set(slots)

    def __len__(self) -> int:
        """Places taken."""
        return len(self._holders)

    async def take(self, name: str) -> None:
        """Raises AdapterMemoryFull if no place frees up in time. Every take needs its `give_back`."""
        if not self._queue and self._has_place_for(name):
            self._hold(name)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((name, turn))
        try:
            await asyncio.wait_for(asyncio.shield(turn), self._wait_seconds)
        except BaseException as error:
            if turn.done():
                self.give_back(name)  # our turn came in the same moment
            else:
                self._queue.remove((name, turn))
                self._let_in()
            if isinstance(error, TimeoutError):
                raise AdapterMemoryFull(
                    f"All {self._slots} places for adapters in memory are taken. Retry shortly, or raise "
                    "ATTUNE_CPU_SLOTS."
                ) from None
            raise

    def share(self, name: str) -> None:
        """Take a place once more that somebody holds; at once, since nobody waits for that."""
        assert name in self._holders
        self._hold(name)

    def give_back(self, name: str) -> None:
        self._holders[name] -= 1
        if self._holders[name] == 0:
            del self._holders[name]
        self._let_in()
        metrics.PLACES_TAKEN.set(len(self))

    def _let_in(self) -> None:
        while self._queue and self._has_place_for(self._queue[0][0]):
            name, turn = self._queue.popleft()
            self._hold(name)
            turn.set_result(None)

    def _has_place_for(self, name: str) -> bool:
        return name in self._holders or len(self._holders) < self._slots

    def _hold(self, name: str) -> None:
        self._holders[name] += 1
        metrics.PLACES_TAKEN.set(len(self))
