"""Keeps a claimed job alive: a thread that tells the news every few seconds and listens for a stop."""

import logging
import math
import threading
import time
from itertools import count
from pathlib import Path
from typing import Literal, Protocol

from adapters_store.traces import trace
from training_jobs.checkpoint_uploads import CheckpointUploads
from training_jobs.client import JobCalls, WebAway
from training_jobs.errors import Fenced, JobFault
from training_jobs.free_memory import gigabytes
from training_jobs.messages import HEARTBEAT_SECONDS, Checkpoint, Event, Heartbeat, Release
from training_jobs.transfer import Storage

log = logging.getLogger(__name__)

#: fenced: someone else's or cancelled, say nothing. paused: checkpoint and leave. leaving: this worker stops.
Reason = Literal["fenced", "paused", "leaving"]

#: The web application gets so long to hear that a job is given back in the middle of a step.
_HURRY_SECONDS = 1.0
_EVENTS_AT_ONCE = 200
_EVENTS_OF_STEPS = 200


class Flag(Protocol):
    def is_set(self) -> bool: ...


class Lease:
    """A watcher of training (training_jobs.training.Watcher) that reports to the web application.

    `leaving` tells that the worker was asked to stop: training does at its next step, and if that is not over in
    `leave_seconds` the job is given back without it. Events, steps and checkpoints may come from any thread; an event
    is forgotten when a heartbeat with it was answered, and has a number, by which the web application knows one that it
    was told already: the answer may have been lost.
    """

    def __init__(self, calls: JobCalls, storage: Storage, leaving: Flag, *, leave_seconds: float) -> None:
        self._calls, self._leaving, self._leave_seconds = calls, leaving, leave_seconds
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._numbers = count(1)
        self._step = self._total = 0
        self._ended: Reason | None = None
        self._closed = threading.Event()
        self._uploads = CheckpointUploads(calls, storage, fenced=self._fence)
        self._thread = threading.Thread(target=self._beats, name="heartbeats", daemon=True)

    def start(self) -> None:
        self._uploads.start()
        self._thread.start()

    def finish_uploads(self, *, drop: bool) -> None:
        """No checkpoint is under way any more. It may take minutes, so heartbeats go on."""
        self._uploads.finish(drop=drop)

    def close(self) -> None:
        """No more heartbeats, and no upload left behind: the lease has its seconds left, no more."""
        self._uploads.finish(drop=True)
        self._closed.set()
        self._thread.join()

    # What training says.

    def event(
        self, message: str, *, level: Literal["info", "warn", "error"] = "info", **metrics: float
    ) -> None:
        """JSON has no NaN: a metric that is no number is left out."""
        told = {name: value for name, value in metrics.items() if math.isfinite(value)}
        with self._lock:
            self._events.append(
                Event(number=next(self._numbers), level=level, message=message[:500], metrics=told or None)
            )

    def step(self, step: int, total: int, loss: float) -> None:
        """An event for each step of a short job, for about 200 of a long one's."""
        self._step, self._total = step, total
        if step % max(1, total // _EVENTS_OF_STEPS) == 0 or step == total:
            self.event(f"Step {step}/{total}: training loss={loss:.2f}", step=step, train_loss=loss)

    def held_out(self, step: int, loss: float, accuracy: float | None) -> None:
        told = f"Step {step}: validation loss={loss:.2f}"
        if accuracy is None:
            self.event(told, step=step, valid_loss=loss)
            return
        told += f", the better answer is the likelier one in {accuracy:.0%} of the held-out pairs"
        self.event(told, step=step, valid_loss=loss, valid_accuracy=accuracy)

    def kept(self, best_step: int, *, step: int, total: int) -> None:
        early = f"Training ends early, after step {step} of {total}: " if step < total else ""
        self.event(
            f"{early}validation loss has not become lower since step {best_step}, so the adapter is the one of "
            f"step {best_step}."
        )

    def halved(self, step: int | None) -> None:
        why = f"The trainer ran out of memory after step {step}. It goes on"
        if step is None:
            why = (
                "An attempt before this one failed, and something on its machine ran out of memory, perhaps the "
                "training. This one goes on"
            )
        self.event(f"{why} with half a batch at a time, which is slower and learns the same.", level="warn")

    def parted(self, parts: int, *, needed: int, free: int) -> None:
        self.event(
            f"A batch would need about {gigabytes(needed)} of memory at once, and the trainer has {gigabytes(free)} "
            f"free: each is computed in {parts} parts, which is slower and learns the same."
        )

    def checkpoint(self, step: int, path: Path) -> None:
        self._uploads.put(step, path)

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
        """The last one that reached storage; after finish_uploads(), the last one of all."""
        return self._uploads.last

    def tell_the_rest(self) -> None:
        """After close(): heartbeats until all events are told, or one fails."""
        before = len(self._events) + 1
        while self._events and len(self._events) < before and self._ended != "fenced":
            before = len(self._events)
            self._beat()

    def _fence(self) -> None:
        self._ended = "fenced"

    def _beat(self) -> None:
        """One heartbeat with the news; sets `ended` if the answer says so."""
        with self._lock:
            told = self._events[:_EVENTS_AT_ONCE]
        checkpoint = self._uploads.last
        try:
            reply = self._calls.heartbeat(
                Heartbeat(
                    epoch=self._calls.epoch,
                    step=self._step,
                    total_steps=self._total,
                    events=told,
                    checkpoint=checkpoint,
                )
            )
        except Fenced:
            self._fence()
            return
        except WebAway as error:
            log.warning("heartbeat: %s", error)
            return
        except JobFault as error:
            # Refused for what it says, and it would be again until the lease has lapsed: say less.
            log.warning("heartbeat: %s", error)
            if checkpoint is not None:
                self._uploads.forget(checkpoint)
                return
        else:
            if reply.stop:
                self._ended = "paused" if reply.state == "paused" else "fenced"
        with self._lock:
            del self._events[: len(told)]

    def _beats(self) -> None:
        left: float | None = None
        beat_due = 0.0
        while self._ended != "fenced":
            now = time.monotonic()
            if self._leaving.is_set():
                left = left or now
                if now - left > self._leave_seconds:
                    self._give_back()
                    return
            if now >= beat_due:
                try:
                    self._beat()
                except Exception as error:  # whatever it is, the lease must not lapse for it
                    log.error("heartbeat: an unexpected error\n%s", trace(error))
                beat_due = time.monotonic() + HEARTBEAT_SECONDS
            if self._closed.wait(min(HEARTBEAT_SECONDS, 0.1)):
                return

    def _give_back(self) -> None:
        """In the middle of a step, which counts for nothing then: the job goes on from its last checkpoint elsewhere.

        Left to the lease, it would count as a failed attempt.
        """
        self._fence()
        try:
            release = Release(epoch=self._calls.epoch, checkpoint=self._uploads.last)
            self._calls.release(release, patience=_HURRY_SECONDS)
        except (Fenced, JobFault) as error:
            log.warning("given back: %s", error)
