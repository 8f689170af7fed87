"""Whether the kernel ended processes for want of memory: all that is left to know of a training that it ended.

No error is raised in such a process. Whoever reads the number before and after sees that it happened, though not to
whom: in a container's own count, or the machine's where there is none.
"""

from pathlib import Path

_COUNTS = (Path("/sys/fs/cgroup/memory.events"), Path("/proc/vmstat"))


def oom_kills() -> int:
    """So many since the container or the machine began; 0 where the system does not tell."""
    for path in _COUNTS:
        try:
            found = dict(line.split() for line in path.read_text().splitlines())
            return int(found["oom_kill"])
        except (OSError, KeyError, ValueError):
            continue
    return 0
