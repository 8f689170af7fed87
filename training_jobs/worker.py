"""The worker's two processes: the parent that receives messages and shows presence, the child that trains.

The parent never imports torch. What they share is two bytes of memory that the child inherits when it is forked.
"""

import json
import logging
import mmap
import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from celery import signals
from celery.worker import state

from adapters_store.scratch import scratch_clear
from adapters_store.traces import trace
from training_jobs.client import WebApp, WebAway
from training_jobs.errors import Fenced, JobFault
from training_jobs.messages import PRESENCE_SECONDS, WorkerHello, queue_name
from training_jobs.oom_kills import oom_kills
from training_jobs.settings import settings

log = logging.getLogger(__name__)

#: This worker's id in claims; a restarted worker is another one, and its old jobs are fenced from it.
WORKER = uuid.uuid4().hex

#: A job that leaves in the middle of a step is given back in so long (lease.py).
GIVE_BACK_SECONDS = 2.0
#: For Celery's own farewell, which takes seconds even when it is idle, hangs while the broker is away, and has nothing
#: to say that anyone waits for.
FAREWELL_SECONDS = 0.5
#: Small jobs in one batch, where a step's launches cost more than its products.
_TOGETHER_ON_GPU = 16
_EXPECTED = (WebAway, JobFault, Fenced)


class SharedFlag:
    """A flag in memory that a forked child shares. No lock: a child that is killed cannot leave one locked."""

    def __init__(self) -> None:
        self._byte = mmap.mmap(-1, 1)

    def set(self) -> None:
        self._byte[0] = 1

    def is_set(self) -> bool:
        return self._byte[0] == 1


class SharedPid:
    """Who can begin a job at once, in memory that a forked child shares: a child that imported what that takes."""

    def __init__(self) -> None:
        self._bytes = mmap.mmap(-1, 8)

    def set(self, pid: int) -> None:
        self._bytes[:] = pid.to_bytes(8, "little")

    def alive(self) -> bool:
        """Whether there is one, and it still lives."""
        pid = int.from_bytes(self._bytes[:], "little")
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return pid != 0


#: Before this trainer began; its children inherit it.
OOM_KILLS = oom_kills()

leaving = SharedFlag()
has_gpu = SharedFlag()
warm = SharedPid()


def busy() -> bool:
    """In the parent: whether a job runs, or none should come.

    A new child takes seconds, on a busy machine a minute, to import what a job needs; others may be faster by then.
    """
    return leaving.is_set() or not warm.alive() or bool(state.reserved_requests)


# The parent.


@signals.worker_ready.connect
def _show_presence(sender: Any, **kwargs: Any) -> None:
    queues = sender.app.amqp.queues.consume_from
    bases = [queue.removeprefix(queue_name("")) for queue in queues if queue.startswith(queue_name(""))]
    threading.Thread(target=_hellos, args=(bases,), name="presence", daemon=True).start()


def _hellos(bases: list[str]) -> None:
    """Every PRESENCE_SECONDS, and at once when a job came or ended: an idle worker should not look busy."""
    web, token = WebApp(settings().web), settings().trainer_token.get_secret_value()
    alone = [base for base in bases if has_dropout(settings().models_dir / base)]
    said: WorkerHello | None = None
    due, away = 0.0, False
    while True:
        gpu = has_gpu.is_set()
        together = settings().together or (_TOGETHER_ON_GPU if gpu else 1)
        device = "cuda" if gpu else "cpu"
        hello = WorkerHello(bases=bases, device=device, busy=busy(), together=together, alone=alone)
        if hello != said or time.monotonic() >= due:
            said, due = hello, time.monotonic() + PRESENCE_SECONDS
            try:
                web.hello(WORKER, trainer_token=token, hello=hello)
                away = False
            # Whatever it is: without this thread the trainer would be gone to all others, and train on.
            except Exception as error:
                if not away:
                    log.warning("presence: %s", _said(error))
                away = True
        time.sleep(0.3)


def _said(error: Exception) -> str:
    """For the log: our own sentence, or of an unexpected error its type and place."""
    return str(error) if isinstance(error, _EXPECTED) else f"an unexpected error\n{trace(error)}"


def has_dropout(base: Path) -> bool:
    """Of a base model's folder, without loading it: such a base is not trained for several jobs at once."""
    try:
        config = json.loads((base / "config.json").read_text())
        return bool({**config, **config.get("text_config", {})}.get("attention_dropout"))
    except (OSError, ValueError, TypeError, AttributeError):
        return False  # a job for it is told what is wrong


@signals.worker_shutting_down.connect
def _leave(**kwargs: Any) -> None:
    """SIGTERM or SIGINT: the job in the child sees the flag at its next step."""
    leaving.set()
    threading.Thread(target=_leave_in_time, name="leave", daemon=True).start()


def _leave_in_time() -> None:
    deadline = time.monotonic() + settings().leave_seconds + GIVE_BACK_SECONDS
    while state.active_requests and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(FAREWELL_SECONDS)
    os._exit(0)  # the child sees that its parent is gone


# The child.


@signals.worker_process_init.connect
def _child_starts(**kwargs: Any) -> None:
    signal.signal(signal.SIGTERM, _child_terminated)
    scratch_clear(settings().work_dir)
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), name="orphan", daemon=True).start()
    threading.Thread(target=_warm_up, name="warm-up", daemon=True).start()


def _child_terminated(signum: int, frame: Any) -> None:
    """A SIGTERM that reached the child itself: end now if idle, else as the job does."""
    leaving.set()
    if not _running.is_set():
        raise SystemExit(0)


def _end_with_parent(parent: int) -> None:
    """A child whose parent was killed would train on with nobody to stop it."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _warm_up() -> None:
    """Import what a job needs (seconds) while waiting for the first one."""
    import training_jobs.run  # noqa: F401
    from training_jobs.base_models import device

    if device().type == "cuda":
        has_gpu.set()
    warm.set(os.getpid())


#: In the child: whether a job runs.
_running = threading.Event()


@contextmanager
def running() -> Iterator[None]:
    _running.set()
    try:
        yield
    finally:
        _running.clear()
