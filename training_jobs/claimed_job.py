"""A job that this worker has claimed: what it needs before it can be trained, what becomes of its adapter, its end."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from adapters_store.chat_template import TemplateUnfit
from adapters_store.manifest import CONFIG_FILE, MANIFEST_FILE, TENSORS_FILE
from adapters_store.scratch import scratch
from adapters_store.traces import trace
from training_jobs.adapter_train import ADAPTER, Outcome
from training_jobs.base_models import LoadedBase, WarmBase
from training_jobs.client import JobCalls, WebApp
from training_jobs.data import examples_read
from training_jobs.errors import Fenced, JobFault, OurFault, PassingFault, Stopped
from training_jobs.examples import Examples
from training_jobs.lease import Flag, Lease
from training_jobs.memory import out_of_memory
from training_jobs.messages import UNKNOWN_FAULT, Complete, Fail, JobSpec, Release, Report
from training_jobs.transfer import Storage

log = logging.getLogger(__name__)

#: A worker that leaves waits this long for the web application to hear of it; the lease says it otherwise.
RELEASE_SECONDS = 10.0


@dataclass(eq=False)
class ClaimedJob:
    """`ended` is how it ended, in a word for the log: completed, failed, released, paused, fenced or untold.

    Every way out is told to the web application, but for a job that is no longer this worker's. `examples` and
    `checkpoint` are there once it is prepared.
    """

    spec: JobSpec
    calls: JobCalls
    lease: Lease
    storage: Storage
    folder: Path
    bases: WarmBase
    ended: str | None = None
    examples: Examples = field(init=False)
    checkpoint: Path | None = None

    def attempt(self, act: Callable[[], object]) -> None:
        """Do a part of the work. If it raises, that is how the job ends, which is told."""
        try:
            try:
                act()
            except Stopped:
                self.ended = self._release()
            except Fenced:
                raise
            except JobFault as fault:
                log.warning("job %s failed: %s", self.spec.job, fault.code)
                self.ended = self._fail(fault)
            except Exception as error:
                log.error("job %s failed by an unexpected error\n%s", self.spec.job, trace(error))
                self.bases.forget()
                self.ended = self._fail(_unexpected(error))
        except Fenced:
            self.ended = "fenced"
        except JobFault as fault:
            # The lease lapses, and the job goes on elsewhere.
            log.warning("job %s: its end could not be told: %s", self.spec.job, fault)
            self.ended = "untold"

    def prepare(self) -> None:
        """Raises JobFault, Stopped or Fenced, like all parts of the work."""
        lines = self.storage.download(self.spec.conversations, self.folder / "conversations.jsonl")
        if self.spec.checkpoint is not None:
            self.checkpoint = self.storage.download(self.spec.checkpoint, self.folder / "resume.safetensors")
        self._check()
        self.examples = self._examples(self.base, lines)
        self._check()

    @property
    def base(self) -> LoadedBase:
        """Loaded anew if an unexpected error of another job may have left it other than it was."""
        return self.bases.get(self.spec.base)

    def publish(self, outcome: Outcome) -> None:
        """Upload the adapter's files and complete the job. Its checkpoints have no purpose any more."""
        assert outcome.probe is not None
        self.lease.finish_uploads(drop=True)
        folder = self.folder / ADAPTER
        for name in (TENSORS_FILE, CONFIG_FILE):
            self.storage.upload(folder / name, self.calls)
        manifest = self.storage.upload(folder / MANIFEST_FILE, self.calls)
        questions = self.folder / "probe.json"
        questions.write_text(outcome.probe.model_dump_json())
        asked = self.storage.upload(questions, self.calls)
        self._last_words()
        self.calls.complete(
            Complete(epoch=self.spec.epoch, manifest=manifest, probe=asked, report=_report(outcome))
        )
        self.ended = "completed"

    def _check(self) -> None:
        """Leave if we should, between two parts of the work."""
        if self.lease.should_stop():
            raise Stopped

    def _examples(self, base: LoadedBase, path: Path) -> Examples:
        try:
            with path.open("rb") as lines:
                examples = examples_read(
                    lines,
                    base.encoder,
                    type=self.spec.hyperparameters.type,
                    max_tokens=base.max_tokens,
                    should_stop=self.lease.should_stop,
                )
        except TemplateUnfit as error:
            raise OurFault(
                "base_unfit", f"{base.ref.name} cannot be trained on conversations: {error}"
            ) from None
        for complaint in examples.complaints(max_tokens=base.max_tokens):
            self.lease.event(complaint, level="warn")
        self.lease.event(examples.told())
        return examples

    def _release(self) -> str:
        self.lease.finish_uploads(drop=False)
        self._last_words()
        checkpoint = self.lease.last_checkpoint
        release = Release(epoch=self.calls.epoch, checkpoint=checkpoint)
        self.calls.release(release, patience=RELEASE_SECONDS)
        return "paused" if self.lease.ended == "paused" else "released"

    def _fail(self, fault: JobFault) -> str:
        self.lease.finish_uploads(drop=True)
        self._last_words()
        self.calls.fail(
            Fail(
                epoch=self.calls.epoch,
                code=fault.code,
                message=fault.message[:1000],
                retry=fault.retry,
                counts=fault.counts,
            )
        )
        return "failed"

    def _last_words(self) -> None:
        """All events are told, while the job is in the state in which they are taken. Raises Fenced.

        Heartbeats end here, and the lease with them, unless the job's own end is told within its seconds.
        """
        self.lease.close()
        if self.lease.ended == "fenced":
            raise Fenced
        self.lease.tell_the_rest()


@contextmanager
def holding(
    spec: JobSpec, *, web: WebApp, bases: WarmBase, work_dir: Path, leaving: Flag, leave_seconds: float
) -> Iterator[ClaimedJob]:
    """Its lease is kept alive, and it has a folder."""
    storage, calls = Storage(), web.of_job(spec)
    lease = Lease(calls, storage, leaving, leave_seconds=leave_seconds)
    lease.start()
    try:
        with scratch(work_dir) as folder:
            yield ClaimedJob(spec, calls, lease, storage, folder, bases)
    finally:
        lease.close()
        storage.close()


def _report(outcome: Outcome) -> Report:
    trained = outcome.trained
    steps = trained.best_step or len(trained.losses)
    return Report(
        train_seconds=trained.seconds,
        steps=len(trained.losses),
        trained_tokens=trained.trained_tokens,
        held_out_tokens=trained.held_out_tokens,
        train_loss=fmean(trained.losses[:steps][-10:]),
        held_out_loss_before=trained.held_out_before,
        held_out_loss_after=trained.held_out_after,
        best_step=trained.best_step,
        stopped_at_step=trained.stopped_at,
        against_base=outcome.against_base,
        against_memory=outcome.against_memory,
    )


def _unexpected(error: Exception) -> JobFault:
    """The text of an unknown error may quote data: only its type is told."""
    if out_of_memory(error):
        return PassingFault(
            "out_of_memory",
            "The trainer ran out of memory. Use a smaller batch_size or shorter conversations.",
        )
    return PassingFault(UNKNOWN_FAULT, f"The trainer had an unexpected fault ({type(error).__name__}).")
