"""How much memory there is to train in: the GPU's, or the machine's within the limit that a container sets."""

from dataclasses import dataclass
from pathlib import Path

import torch

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Memory:
    """Bytes: what can still be taken, and all there is."""

    free: int
    total: int


def memory_now(device: torch.device) -> Memory | None:
    """None where the system does not tell."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        # What torch holds for itself and does not use is free, too.
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return Memory(free + unused, total)
    machine = _of_machine()
    limit = _of_container()
    if machine is None or limit is None:
        return machine or limit
    return Memory(min(machine.free, limit.free), min(machine.total, limit.total))


def _of_machine() -> Memory | None:
    try:
        lines = _MEMINFO.read_text().splitlines()
        found = {
            name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)
        }
        return Memory(found["MemAvailable"], found["MemTotal"])
    except (OSError, KeyError, ValueError, IndexError):
        return None


def _of_container() -> Memory | None:
    """A control group's limit (version 2). Pages of files that it read count as used there, and are free for us."""
    try:
        limit, used = (int((_CGROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        return Memory(max(0, limit - used + int(stat["inactive_file"])), limit)
    except (OSError, KeyError, ValueError):
        return None  # no such group, or "max": no limit


def gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
