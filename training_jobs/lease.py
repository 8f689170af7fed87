"""Keeps a claimed job alive: a thread that tells the news every few seconds and listens for a stop."""

import logging
import threading
from pathlib import Path
from typing import Literal, Protocol

from training_jobs.client import JobCalls, WebAway
from training_jobs.errors import Fenced, JobFault
from training_jobs.messages import HEARTBEAT_SECONDS, Checkpoint, Event, Heartbeat
from training_jobs.transfer import Storage

log = logging.getLogger(__name__)

#: fenced: someone else's or cancelled, say nothing. paused: checkpoint and leave. leaving: this worker stops.
Reason = Literal["fenced", "paused", "leaving"]

_EVENTS_AT_ONCE = 200
_EVENTS_OF_STEPS = 200


class Flag(Protocol):
    def is_set(self) -> bool: ...


class Lease:
    """A watcher of training (training_jobs.sft.Watcher) that reports to the web application.

    `leaving` tells that the worker was asked to stop. Events, steps and checkpoints may come from any thread; an
    event is forgotten when a heartbeat with it was answered. Checkpoints are uploaded by a thread of their own, so
    that a large one never holds up a heartbeat.
    """

    def __init__(self, calls: JobCalls, storage: Storage, leaving: Flag) -> None:
        self._calls, self._storage, self._leaving = calls, storage, leaving
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._step = self._total = 0
        self._saved: tuple[int, Path] | None = None
        self._uploaded: Checkpoint | None = None
        self._ended: Reason | None = None
        self._closed = threading.Event()
        self._upload_due = threading.Event()
        self._threads = [
            threading.Thread(target=self._beats, name="heartbeats", daemon=True),
            threading.Thread(target=self._uploads, name="checkpoints", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """No more heartbeats, and no upload left behind."""
        self._closed.set()
        self._upload_due.set()
        for thread in self._threads:
            thread.join()

    # What training says.

    def event(
        self, message: str, *, level: Literal["info", "warn", "error"] = "info", **metrics: float
    ) -> None:
        with self._lock:
            self._events.append(Event(level=level, message=message[:500], metrics=metrics or None))

    def step(self, step: int, total: int, loss: float) -> None:
        """An event for each step of a short job, for about 200 of a long one's."""
        self._step, self._total = step, total
        if step % max(1, total // _EVENTS_OF_STEPS) == 0 or step == total:
            self.event(f"Step {step}/{total}: training loss={loss:.2f}", step=step, train_loss=loss)

    def held_out(self, step: int, loss: float) -> None:
        self.event(f"Step {step}: validation loss={loss:.2f}", step=step, valid_loss=loss)

    def checkpoint(self, step: int, path: Path) -> None:
        """Uploaded soon; a newer one replaces one that still waits."""
        with self._lock:
            waiting, self._saved = self._saved, (step, path)
        if waiting is not None:
            waiting[1].unlink(missing_ok=True)
        self._upload_due.set()

    def should_stop(self) -> bool:
        return self.ended is not None

    # What others say.

    @property
    def ended(self) -> Reason | None:
        """Why training should stop, if it should."""
        if self._ended is None and self._leaving.is_set():
            return "leaving"
        return self._ended

    @property
    def last_checkpoint(self) -> Checkpoint | None:
        """The last one that reached storage; after close(), the last one of all."""
        return self._uploaded

    def tell_the_rest(self) -> None:
        """After close(): heartbeats until all events are told, or one fails."""
        before = len(self._events) + 1
        while self._events and len(self._events) < before and self._ended != "fenced":
            before = len(self._events)
            self._beat()

    def _beat(self) -> None:
        """One heartbeat with the news; sets `ended` if the answer says so."""
        with self._lock:
            told = self._events[:_EVENTS_AT_ONCE]
        try:
            reply = self._calls.heartbeat(
                Heartbeat(
                    epoch=self._calls.epoch,
                    step=self._step,
                    total_steps=self._total,
                    events=told,
                    checkpoint=self._uploaded,
                )
            )
        except Fenced:
            self._ended = "fenced"
            return
        except WebAway as error:
            log.warning("heartbeat: %s", error)
            return
        except JobFault as error:
            log.warning("heartbeat: %s", error)
            self._uploaded = None  # the one thing in it that can be wrong
            return
        with self._lock:
            del self._events[: len(told)]
        if reply.stop:
            self._ended = "paused" if reply.state == "paused" else "fenced"

    def _upload(self) -> None:
        with self._lock:
            saved, self._saved = self._saved, None
        if saved is None:
            return
        step, path = saved
        try:
            stored = self._storage.upload(path, self._calls)
            self._uploaded = Checkpoint(step=step, **stored.model_dump())
        except Fenced:
            self._ended = "fenced"
        except JobFault as error:
            log.warning("checkpoint: %s", error)  # training goes on; the next one may get through
        finally:
            path.unlink(missing_ok=True)

    def _beats(self) -> None:
        while not self._closed.is_set() and self._ended != "fenced":
            self._beat()
            self._closed.wait(HEARTBEAT_SECONDS)

    def _uploads(self) -> None:
        while not self._closed.is_set():
            self._upload_due.wait()
            self._upload_due.clear()
            self._upload()
        self._upload()
