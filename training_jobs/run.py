"""One job from its claim to its end."""

import logging
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from adapters_store.manifest import CONFIG_FILE, MANIFEST_FILE, TENSORS_FILE
from adapters_store.scratch import scratch
from training_jobs.adapter_train import ADAPTER, Outcome, adapter_train
from training_jobs.base_models import LoadedBase, WarmBase
from training_jobs.chat_template import TemplateUnfit
from training_jobs.client import JobCalls, WebApp
from training_jobs.data import examples_read
from training_jobs.errors import Fenced, JobFault, OurFault, PassingFault, Stopped
from training_jobs.examples import Examples
from training_jobs.lease import Flag, Lease
from training_jobs.memory import out_of_memory
from training_jobs.messages import Claim, Complete, Fail, JobSpec, Probe, Release, Report
from training_jobs.training import Pace
from training_jobs.transfer import Storage

log = logging.getLogger(__name__)

#: A worker that leaves waits this long for the web application to hear of it; the lease says it otherwise.
RELEASE_SECONDS = 10.0


@dataclass(frozen=True)
class JobRunner:
    """What a worker has for every job. `leaving` tells that it was asked to stop, which a job may take `leave_seconds`
    for; `pace` is that of checkpoints."""

    worker: str
    web: WebApp
    bases: WarmBase
    work_dir: Path
    leaving: Flag
    leave_seconds: float
    pace: Pace

    def run(self, job: str, *, dispatch_token: str) -> str:
        """Claim and run a job; how it ended, in a word for the log.

        The word is completed, failed, released, paused, fenced or untold. Every way out is told to the web
        application, but for a job that is no longer this worker's.
        """
        try:
            spec = self.web.claim(job, dispatch_token=dispatch_token, claim=Claim(worker=self.worker))
        except Fenced:
            return "fenced"
        storage, calls = Storage(), self.web.of_job(spec)
        lease = Lease(calls, storage, self.leaving, leave_seconds=self.leave_seconds)
        lease.start()
        try:
            with scratch(self.work_dir) as folder:
                return _Job(self, spec, calls, lease, storage, folder).end()
        except Fenced:
            return "fenced"
        except PassingFault as fault:
            log.warning("nobody could be told: %s", fault)  # the lease lapses, and the job goes on elsewhere
            return "untold"
        finally:
            lease.close()
            storage.close()


@dataclass
class _Job:
    runner: JobRunner
    spec: JobSpec
    calls: JobCalls
    lease: Lease
    storage: Storage
    scratch: Path

    def end(self) -> str:
        """Run it and say how it ended. Raises Fenced."""
        try:
            self.run()
            return "completed"
        except Stopped:
            return self._release()
        except JobFault as fault:
            log.warning("job failed: %s", fault.code)
            return self._fail(fault)
        except Fenced:
            raise
        except Exception as error:
            log.exception("job failed by an unexpected error")
            self.runner.bases.forget()
            return self._fail(_unexpected(error))

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
            Fail(epoch=self.calls.epoch, code=fault.code, message=fault.message[:1000], retry=fault.retry)
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

    def run(self) -> None:
        """Raises JobFault, Stopped or Fenced."""
        lines = self.storage.download(self.spec.conversations, self.scratch / "conversations.jsonl")
        checkpoint = None
        if self.spec.checkpoint is not None:
            checkpoint = self.storage.download(self.spec.checkpoint, self.scratch / "resume.safetensors")
        self._check()
        base = self.runner.bases.get(self.spec.base)
        examples = self._examples(base, lines)
        self._check()
        outcome = self._train(base, examples, checkpoint)
        assert outcome.probe is not None
        self._publish(_report(outcome), outcome.probe)

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

    def _train(self, base: LoadedBase, examples: Examples, checkpoint: Path | None) -> Outcome:
        return adapter_train(
            base,
            examples,
            self.scratch,
            recipe=self.spec.recipe,
            hyperparameters=self.spec.hyperparameters,
            watcher=self.lease,
            pace=self.runner.pace,
            checkpoint=checkpoint,
            with_probe=True,
        )

    def _publish(self, report: Report, probe: Probe) -> None:
        """Upload the adapter's files and complete the job. Its checkpoints have no purpose any more."""
        self.lease.finish_uploads(drop=True)
        folder = self.scratch / ADAPTER
        for name in (TENSORS_FILE, CONFIG_FILE):
            self.storage.upload(folder / name, self.calls)
        manifest = self.storage.upload(folder / MANIFEST_FILE, self.calls)
        questions = self.scratch / "probe.json"
        questions.write_text(probe.model_dump_json())
        asked = self.storage.upload(questions, self.calls)
        self._last_words()
        self.calls.complete(Complete(epoch=self.spec.epoch, manifest=manifest, probe=asked, report=report))


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
    return PassingFault("trainer_error", f"The trainer had an unexpected fault ({type(error).__name__}).")
