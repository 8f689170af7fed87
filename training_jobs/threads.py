"""How many CPU threads to compute with, from how busy the machine is.

Two threads halve a training step on an idle machine and make it several times slower on a busy one, where they wait
for each other at every barrier. So: as many as there are cores that others leave free, looked at again as time passes.
"""

import os
import time
from pathlib import Path

import torch

_STAT = Path("/proc/stat")


class LoadMeter:
    """Counts free cores between two looks: idle time of the machine plus the time that this process used itself."""

    def __init__(self) -> None:
        self.cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._seen = self._look()

    @property
    def works(self) -> bool:
        return self._seen is not None

    def free_cores(self) -> float | None:
        """Average since the last call, or None where the system does not tell, or too little time has passed."""
        seen = self._look()
        if seen is None or self._seen is None or seen[0] - self._seen[0] < 0.1:
            return None
        elapsed, idle, own = (now - before for now, before in zip(seen, self._seen, strict=True))
        self._seen = seen
        return min(self.cores, (idle + own) / elapsed)

    @staticmethod
    def _look() -> tuple[float, float, float] | None:
        """Seconds: wall, idle on all cores, used by this process."""
        try:
            fields = _STAT.read_text().split("\n", 1)[0].split()
        except OSError:
            return None
        own = os.times()
        return time.monotonic(), int(fields[4]) / os.sysconf("SC_CLK_TCK"), own.user + own.system


class ThreadChooser:
    """Sets torch's threads at the start and every few seconds of training on a CPU."""

    def __init__(self, *, every_seconds: float = 5.0) -> None:
        self._meter = LoadMeter()
        self._every = every_seconds
        self._next = 0.0
        if self._meter.works:
            time.sleep(0.15)  # a first impression
            self.choose()

    def choose(self) -> None:
        """Cheap; call it at every step."""
        if time.monotonic() < self._next:
            return
        free = self._meter.free_cores()
        if free is not None:
            torch.set_num_threads(threads_for(free, cores=self._meter.cores))
        self._next = time.monotonic() + self._every


def threads_for(free: float, *, cores: int) -> int:
    """The whole cores that are (almost) free, at least one."""
    return max(1, min(cores, int(free + 0.3)))
