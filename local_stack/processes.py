"""Linux's means against orphans: death signals, subreapers, and the process table.

A child can promise to die with its parent (PR_SET_PDEATHSIG), but its own children make no such promise: vLLM's
engine core, Celery's pool and PostgreSQL's backends would go on. A subreaper inherits such orphans, so all
that it ever started stays below it in the process table and can be ended.
"""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None, use_errno=True)


class Process(NamedTuple):
    pid: int
    parent: int
    session: int
    state: str


def become_subreaper() -> None:
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(signum: int) -> None:
    LIBC.prctl(PR_SET_PDEATHSIG, signum, 0, 0, 0)


def child_setup(signum: int) -> Callable[[], None]:
    """For Popen's preexec_fn, which runs after a change of user (that would clear the death signal).

    The kernel sends it when the *thread* that forked ends: call Popen from the main thread.
    """
    parent = os.getpid()

    def setup() -> None:
        die_with_parent(signum)
        if os.getppid() != parent:
            os._exit(1)

    return setup


def table() -> list[Process]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # "pid (name) state ppid pgrp session": the name may itself hold brackets and blanks.
                state, parent, _group, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                found.append(Process(int(entry.name), int(parent), int(session), state))
    return found


def descendants(pid: int) -> list[Process]:
    """All living processes below `pid` (zombies are gone already, only not reaped)."""
    children: dict[int, list[Process]] = {}
    for process in table():
        children.setdefault(process.parent, []).append(process)
    below: list[Process] = []
    queue = [pid]
    while queue:
        for child in children.get(queue.pop(), []):
            below.append(child)
            queue.append(child.pid)
    return [process for process in below if process.state not in "ZX"]


def session_members(session: int) -> list[int]:
    return [p.pid for p in table() if p.session == session and p.state not in "ZX"]


def send(pid: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)


def reap() -> None:
    """Collect every child that has ended; only for a process that waits for none of them by other means."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def end_descendants(*, patience: float) -> None:
    """Wait until nothing is left below this process; after `patience` seconds SIGKILL what is."""
    deadline = time.monotonic() + patience
    while True:
        reap()
        left = descendants(os.getpid())
        if not left:
            return
        if time.monotonic() > deadline:
            for process in left:
                send(process.pid, signal.SIGKILL)
        time.sleep(0.05)
