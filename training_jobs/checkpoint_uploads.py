"""Checkpoints on their way to storage, in a thread of their own, so that a large one never holds up a heartbeat."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from training_jobs.client import JobCalls
from training_jobs.errors import Fenced, JobFault
from training_jobs.messages import Checkpoint
from training_jobs.transfer import Storage

log = logging.getLogger(__name__)


class CheckpointUploads:
    """One upload at a time; a newer checkpoint replaces one that still waits. Every file is removed in the end.

    `fenced` is called, in the uploading thread, if the job turns out to be someone else's.
    """

    def __init__(self, calls: JobCalls, storage: Storage, *, fenced: Callable[[], None]) -> None:
        self._calls, self._storage, self._fenced = calls, storage, fenced
        self._changed = threading.Condition()
        self._waiting: tuple[int, Path] | None = None
        self._ending = False
        self._last: Checkpoint | None = None
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, step: int, path: Path) -> None:
        with self._changed:
            self._drop()
            self._waiting = step, path
            self._changed.notify()

    def finish(self, *, drop: bool) -> None:
        """Returns when nothing is under way any more; `drop` one that still waits, or upload it first."""
        with self._changed:
            self._ending = True
            if drop:
                self._drop()
            self._changed.notify()
        self._thread.join()

    @property
    def last(self) -> Checkpoint | None:
        """The last one that reached storage; after finish(), the last one of all."""
        return self._last

    def forget(self, checkpoint: Checkpoint) -> None:
        """The web application will not have it."""
        if self._last == checkpoint:
            self._last = None

    def _drop(self) -> None:
        if self._waiting is not None:
            self._waiting[1].unlink(missing_ok=True)
            self._waiting = None

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting is not None or self._ending)
                if self._waiting is None:
                    return
                (step, path), self._waiting = self._waiting, None
            self._upload(step, path)

    def _upload(self, step: int, path: Path) -> None:
        try:
            stored = self._storage.upload(path, self._calls)
            self._last = Checkpoint(step=step, **stored.model_dump())
        except Fenced:
            self._fenced()
        except JobFault as error:
            log.warning("checkpoint: %s", error)  # training goes on; the next one may get through
        finally:
            path.unlink(missing_ok=True)
