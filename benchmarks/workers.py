"""The benchmark's side of its engines' processes: start them, hand them requests, keep their logs."""

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from benchmarks.engine_worker import ANSWER
from benchmarks.machine import ROOT
from benchmarks.workload import Request

#: Of an engine's log, when it ended early.
_LAST_LINES = 60


class EngineEnded(RuntimeError):
    """The engine's process is gone, or its answers show that its figures would mean nothing."""


@dataclass
class Worker:
    """One engine. `kinds` holds each kind's first adapter and one past its last, as the engine numbers them."""

    engine: str
    kinds: dict[str, tuple[int, int]]
    process: "subprocess.Popen[str]"
    log: IO[str]

    def wait_ready(self) -> None:
        """Until it is up and warm; every adapter must have changed what it says. Raises EngineEnded."""
        answer = self._answer()
        if answer["different"] != answer["models"]:
            raise EngineEnded(
                f"{self.engine}: {answer['different']} different answers where there should be {answer['models']}."
            )

    def begin(self, kind: str, requests: Sequence[Request], arrivals: Sequence[Request] = ()) -> None:
        """A run that advance() then works on; requests have the numbers of the kind's adapters."""
        line = {
            "requests": [self._asked(kind, request) for request in requests],
            "arrivals": [self._asked(kind, request) for request in arrivals],
        }
        self.tell(line)

    def advance(self, seconds: float = math.inf) -> dict[str, Any] | None:
        """Go on with the run until `seconds` have passed, and stand still again. {"seconds", "read", "streams"} of
        engine_worker once it has ended, None before. Raises EngineEnded."""
        self.tell({"advance": seconds})
        answer = self._answer()
        return None if "paused" in answer else answer

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()

    def _asked(self, kind: str, request: Request) -> dict[str, Any]:
        first = self.kinds[kind][0] if kind in self.kinds else None
        adapter = -1 if first is None or request.adapter < 0 else first + request.adapter
        return {**asdict(request), "adapter": adapter}

    def tell(self, line: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(line) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(ANSWER):
                result: dict[str, Any] = json.loads(line.removeprefix(ANSWER))
                return result
            self.log.write(line)
            self.log.flush()
        raise self._ended()

    def _ended(self) -> EngineEnded:
        code = self.process.wait()
        lines = Path(self.log.name).read_text(errors="replace").splitlines()[-_LAST_LINES:]
        return EngineEnded("\n".join([f"{self.engine} ended early ({code}); the end of its log:", *lines]))


@dataclass
class Engines:
    """Those that are up, by name, and why the others have ended."""

    up: dict[str, Worker] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def losses(self, engine: str) -> Iterator[None]:
        """Within it the engine may end: it is then no longer up, and the reason kept."""
        try:
            yield
        except EngineEnded as error:
            say(f"FAILED: {error}")
            self.failed[engine] = str(error)
            self.up.pop(engine).stop()


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def launch(
    engine: str,
    *,
    options: dict[str, Any],
    folders: dict[str, list[tuple[str, str]]],
    batch: int,
    logs: Path,
) -> Worker:
    """Start an engine; `folders` holds each kind's adapters, a serving name and a path each."""
    log = (logs / f"{engine}.log").open("a")
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.engine_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        cwd=ROOT,
    )
    kinds, flat = {}, []
    for kind, made in folders.items():
        kinds[kind] = (len(flat), len(flat) + len(made))
        flat += made
    worker = Worker(engine, kinds, process, log)
    worker.tell({"engine": engine, "options": options, "folders": flat, "kinds": kinds, "batch": batch})
    return worker
