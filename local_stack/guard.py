"""The process that the terminal sees. It does one thing: when the supervisor has gone, nothing is left.

The guard is a subreaper: should the supervisor be killed, all that it started becomes the guard's, gets its
death signal at once, and SIGKILL after three seconds. Should the guard be killed, the supervisor gets SIGTERM
and stops everything in order. Only killing both at once leaves it to each part to obey its death signal.
"""

import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable

from local_stack import processes
from local_stack.home import Home

PATIENCE = 3.0


def guarded(home: Home, supervise: Callable[[int], int], *, leash: bool) -> int:
    """Run `supervise(guard's pid)` in a child; its exit code. With `leash`, also stop when stdin is closed."""
    processes.become_subreaper()
    guard = os.getpid()
    supervisor = os.fork()
    if supervisor == 0:
        os.setsid()  # the terminal's signals are for the guard
        processes.die_with_parent(signal.SIGTERM)
        code = 1
        try:
            code = supervise(guard) if os.getppid() == guard else 1
        except Exception:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)

    def stop(*_: object) -> None:
        processes.send(supervisor, signal.SIGTERM)

    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, stop)
    watched = [sys.stdin.fileno()] if leash else []
    while True:
        pid, status = os.waitpid(supervisor, os.WNOHANG)
        if pid:
            break
        if not watched:
            time.sleep(0.1)
        elif select.select(watched, [], [], 0.1)[0] and not os.read(watched[0], 1024):
            watched.clear()
            stop()
    killed = os.WIFSIGNALED(status)
    processes.end_descendants(patience=PATIENCE if killed else 0)
    home.state_file.unlink(missing_ok=True)
    return 128 + os.WTERMSIG(status) if killed else os.WEXITSTATUS(status)
