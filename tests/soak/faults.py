"""What is killed, in an order and at moments that a seed decides."""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, get_args

import redis

from local_stack import processes
from local_stack.home import StackError
from tests.soak.parts import Parts

#: child: the trainer's process that trains. trainer: its parent, alone. broker: Valkey, after it has lost everything.
Kind = Literal["child", "trainer", "dispatcher", "web", "broker"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_TRAINERS = ("child", "trainer")
#: A job has three attempts. The soak takes two of them at most: a third would be quarantine, which has its own test.
_SPARED_AFTER = 2
#: Seconds of wandering before a kill: about as long as a job trains.
_LONGEST = 6.0
_PATIENCE_SECONDS = 1800.0

T = TypeVar("T")


@dataclass(frozen=True)
class Kill:
    """`at`: by the database's clock. `states`: of the unfinished jobs at that moment. `job`: the one that lost its
    trainer, at `step` as far as the web application had heard."""

    kind: Kind
    at: float
    states: tuple[str, ...]
    job: str | None = None
    step: int = 0


@dataclass
class Killer:
    """`done`: the kills so far."""

    parts: Parts
    seed: int
    done: list[Kill] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._bag: list[Kind] = []
        self._hits: Counter[str] = Counter()
        self._lost: set[tuple[str, int]] = set()

    def kill_one(self) -> Kill:
        """Wait until there is something to disturb, then at random, and then until the next in turn may be killed.

        Raises StackError if no job is to be seen for minutes.
        """
        self._bag = self._bag or self._random.sample(KINDS, len(KINDS))
        kind = self._bag.pop()
        _until(lambda: self._disturbs(kind, self._jobs()))
        time.sleep(self._random.uniform(0, _LONGEST))
        kill = _until(lambda: self._try(kind))
        self.done.append(kill)
        return kill

    def _jobs(self) -> list[dict[str, Any]]:
        """Those that a process of ours has in its hands."""
        return self.parts.rows(
            "SELECT id, state, epoch, step, extract(epoch FROM clock_timestamp())::float AS at FROM jobs_job "
            "WHERE state IN ('validating', 'queued', 'dispatched', 'running', 'gating') ORDER BY created_at"
        )

    def _disturbs(self, kind: Kind, jobs: list[dict[str, Any]]) -> bool:
        """Whether a job is in the hands of what is to be killed."""
        return bool(self._held(jobs) if kind in _TRAINERS else jobs)

    def _held(self, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """By the trainer that is alive: one whose trainer was killed is running by name until its lease lapses."""
        return [job for job in jobs if job["state"] == "running" and _key(job) not in self._lost]

    def _try(self, kind: Kind) -> Kill | None:
        """None while the part is down or to be spared, or there is nothing to disturb any more."""
        jobs = self._jobs()
        spared = kind in _TRAINERS and any(self._hits[_id(job)] >= _SPARED_AFTER for job in jobs)
        pids = self._pids(kind)
        if spared or not pids or not self._disturbs(kind, jobs):
            return None
        if kind == "broker" and not self._flushed():
            return None
        for pid in pids:
            processes.send(pid, signal.SIGKILL)
        kill = Kill(kind, jobs[0]["at"], tuple(job["state"] for job in jobs))
        for job in self._held(jobs) if kind in _TRAINERS else []:
            self._lost.add(_key(job))
            self._hits[_id(job)] += 1
            kill = replace(kill, job=_id(job), step=job["step"])
        return kill

    def _flushed(self) -> bool:
        """Whether it was there to lose everything."""
        try:
            with redis.Redis.from_url(self.parts.stack.env["ATTUNE_BROKER_URL"]) as broker:
                return bool(broker.flushall())
        except redis.RedisError:
            return False

    def _pids(self, kind: Kind) -> list[int]:
        """None of them while the part is down."""
        try:
            if kind == "child":
                return [process.pid for process in processes.descendants(self.parts.stack.pid("trainer"))]
            return [self.parts.stack.pid("valkey" if kind == "broker" else kind)]
        except StackError:
            return []


def _until(found: Callable[[], T | None]) -> T:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not (result := found()):
        if time.monotonic() > deadline:
            raise StackError("There is no job that could be disturbed.")
        time.sleep(0.1)
    return result


def _id(job: dict[str, Any]) -> str:
    return str(job["id"])


def _key(job: dict[str, Any]) -> tuple[str, int]:
    return _id(job), job["epoch"]
