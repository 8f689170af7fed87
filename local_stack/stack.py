"""The local stack for tests and the demo.

    with stack.start(parts={"postgres", "valkey", "s3"}, home=tmp_path) as running:
        running.env["ATTUNE_DATABASE_URL"]

It ends with the process that started it, however that ends.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from local_stack import processes
from local_stack.home import PARTS, ROOT, Home, StackError, default_folder


class Stack:
    """A running stack. `env` holds every ATTUNE_ variable, `urls` the parts' addresses."""

    def __init__(self, home: Home, process: "subprocess.Popen[bytes] | None" = None) -> None:
        self.home = home
        self._process = process

    @property
    def state(self) -> dict[str, Any]:
        state = self.home.state()
        if state is None:
            raise StackError(f"No stack is running on {self.home.folder}. Start it with `make up`.")
        return state

    @property
    def env(self) -> dict[str, str]:
        env: dict[str, str] = self.state["env"]
        return env

    @property
    def urls(self) -> dict[str, str]:
        urls: dict[str, str] = self.state["urls"]
        return urls

    def pid(self, part: str) -> int:
        """The part's main process; raises while it is down."""
        pid = self.state["services"][part]["pid"]
        if pid is None:
            raise StackError(f"{part} is not running")
        return int(pid)

    def log(self, part: str) -> str:
        return self.home.log(part).read_text(errors="replace")

    def kill(self, part: str, signum: int = signal.SIGKILL) -> None:
        """A fault for a test; the supervisor starts the part again."""
        os.kill(self.pid(part), signum)

    def wait_ready(self, part: str, *, restarts: int = 0, timeout: float = 120) -> None:
        """Until `part` is ready and has been restarted at least `restarts` times."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            service = self.state["services"][part]
            if service["state"] in ("ready", "done") and service["restarts"] >= restarts:
                return
            time.sleep(0.05)
        raise StackError(
            f"{part} was not ready after {timeout:.0f} s. The end of its log:\n{self.log(part)[-2000:]}"
        )

    def stop(self, *, timeout: float = 10) -> None:
        """Idempotent. Returns when every process has gone."""
        if self._process is None:
            state = self.home.state()
            if state is not None:
                processes.send(int(state["pid"]), signal.SIGTERM)
        elif self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait(timeout)
        deadline = time.monotonic() + timeout
        while self.home.locked():
            if time.monotonic() > deadline:
                raise StackError(f"The stack on {self.home.folder} did not stop in {timeout:.0f} s.")
            time.sleep(0.05)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def attach(home: Path | None = None) -> Stack:
    """The stack that someone else started on `home`; raises when there is none."""
    running = Stack(Home(home or default_folder()))
    _ = running.state
    return running


def start(
    *,
    parts: Iterable[str] = PARTS,
    home: Path | None = None,
    env: Mapping[str, str] | None = None,
    fast: bool = True,
    timeout: float = 1000,
    on_line: Callable[[str], None] | None = None,
) -> Stack:
    """Start `parts` and return when all are ready (the three stores: about 3 s; with the engine: a minute).

    `env` is added to the environment; a URL in it replaces a part. `on_line` gets each line of progress. `fast` is for
    data that nobody misses after a power cut.
    Raises StackError with the progress and the failing part's log when a part does not start.
    """
    place = Home(home or default_folder())
    command = [sys.executable, "-m", "local_stack", "up", "--leash", "--home", str(place.folder)]
    command += ["--parts", ",".join(parts), *(["--fast"] if fast else [])]
    progress = place.log("up")
    with open(progress, "wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    running = Stack(place, process)
    deadline = time.monotonic() + timeout
    with open(progress) as lines:
        while True:
            ended = process.poll() is not None
            for line in lines:
                if on_line:
                    on_line(line.rstrip("\n"))
            if ended:
                raise StackError(f"The stack did not start.\n{progress.read_text()}")
            state = place.state()
            if state is not None and state["pid"] == process.pid and state["ready"]:
                return running
            if time.monotonic() > deadline:
                running.stop()
                raise StackError(f"The stack was not ready after {timeout:.0f} s.\n{progress.read_text()}")
            time.sleep(0.05)
