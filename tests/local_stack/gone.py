"""Whether processes have ended: the promise is five seconds, however the stack ends."""

import time
from collections.abc import Collection

from local_stack import processes


def all_gone(pids: Collection[int], *, seconds: float = 5) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        alive = {found.pid for found in processes.table() if found.state not in "ZX"}
        if alive.isdisjoint(pids):
            return True
        time.sleep(0.05)
    return False
