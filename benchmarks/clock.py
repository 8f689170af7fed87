"""A clock that stands still while its engine is paused, so that what it says is about the time in which that worked."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """It begins at 0 seconds and stands still but within running()."""

    def __init__(self) -> None:
        self._before = 0.0
        self._since: float | None = None

    def now(self) -> float:
        """Seconds in which it has run."""
        return self._before + (0.0 if self._since is None else time.perf_counter() - self._since)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._since = time.perf_counter()
        try:
            yield
        finally:
            self._before, self._since = self.now(), None
