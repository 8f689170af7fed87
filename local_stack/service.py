"""What a part of the stack is. Everything that differs between parts is data; the supervisor knows no names."""

import os
import pwd
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from local_stack import processes


class NotReadyError(Exception):
    """The part does not do its work yet; the text says what it did instead."""


class WrongError(Exception):
    """The part does its work wrongly, and waiting changes nothing; the text is a sentence for whoever started it."""


def nothing() -> None:
    """For parts that need no preparation."""


@dataclass(frozen=True, kw_only=True)
class Service:
    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    # Raises until a real operation succeeds; WrongError ends the start. Called again and again from the supervisor's
    # only thread: be quick.
    ready: Callable[[], None] = nothing
    # Runs before every start: create what is missing, remove what a crash left.
    prepare: Callable[[], None] = nothing
    needs: tuple[str, ...] = ()
    url: str = ""
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals | None = (
        None  # what it gets when the supervisor is killed; None: the stop signal
    )
    grace: float = 1.4  # seconds between the stop signal and SIGKILL
    patience: float = 60.0  # seconds until the first readiness
    once: bool = False  # a step, not a server: ready when it has ended with 0
    user: pwd.struct_passwd | None = None  # run as this user (only root can)

    def start(self, log: Path) -> "subprocess.Popen[bytes]":
        """In a session of its own, so that a terminal's Ctrl-C reaches the supervisor alone."""
        with open(os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600), "ab") as output:
            return subprocess.Popen(
                self.command,
                env=dict(self.env),
                cwd=self.cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=self.user.pw_uid if self.user else None,
                group=self.user.pw_gid if self.user else None,
                extra_groups=[] if self.user else None,
                preexec_fn=processes.child_setup(self.death_signal or self.stop_signal),
            )


def http_ready(url: str) -> Callable[[], None]:
    def probe() -> None:
        with urllib.request.urlopen(url, timeout=2) as answer:
            answer.read()

    return probe


@dataclass
class CommandReady:
    """Readiness by a command that takes its time: started by one call, judged by a later one.

    When it ends with the exit code `wrong`, its last line says what is wrong.
    """

    command: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    log: Path
    wrong: int
    _running: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    def __call__(self) -> None:
        if self._running is None:
            with open(os.open(self.log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600), "ab") as output:
                self._running = subprocess.Popen(
                    self.command,
                    env=dict(self.env),
                    cwd=self.cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    preexec_fn=processes.child_setup(signal.SIGKILL),
                )
        code = self._running.poll()
        if code is None:
            raise NotReadyError(f"{' '.join(self.command[1:])} is still running")
        self._running = None
        if code == self.wrong:
            raise WrongError(self.log.read_text(errors="replace").strip().rpartition("\n")[2])
        if code:
            raise NotReadyError(f"{' '.join(self.command[1:])} ended with {code}, see {self.log}")
