"""The jobs of a message from their claims to their ends: one, or small ones that are trained together."""

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from training_jobs.adapter_train import Outcome, adapter_train
from training_jobs.adapters_train import Wish, adapters_train, check_together
from training_jobs.base_models import WarmBase
from training_jobs.claimed_job import ClaimedJob, holding
from training_jobs.client import WebApp, WebAway
from training_jobs.errors import Fenced, JobFault, UserFault
from training_jobs.lease import Flag
from training_jobs.messages import Claim
from training_jobs.oom_kills import oom_kills
from training_jobs.training import Pace

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class JobRunner:
    """What a worker has for every job. `leaving` tells that it was asked to stop, which a job may take `leave_seconds`
    for; `pace` is that of checkpoints; `oom_kills` were counted before the worker began."""

    worker: str
    web: WebApp
    bases: WarmBase
    work_dir: Path
    leaving: Flag
    leave_seconds: float
    pace: Pace
    oom_kills: int

    def run(self, jobs: Mapping[str, str]) -> dict[str, str]:
        """Claim and run jobs, of each of which there is the dispatch token; how each ended (ClaimedJob.ended).

        Those whose claims are refused, or not answered, are left out: the dispatcher sends them again.
        """
        ended = {}
        with ExitStack() as stack:
            held = {}
            for job, token in jobs.items():
                if self.leaving.is_set():
                    break
                try:
                    held[job] = stack.enter_context(self._claimed(job, token))
                except Fenced:
                    ended[job] = "fenced"
                except JobFault as refusal:
                    log.warning("job %s was not claimed: %s", job, refusal)
                except WebAway as error:
                    log.warning("job %s and those after it were not claimed: %s", job, error)
                    break
            self._train(list(held.values()))
            ended |= {job: str(claimed.ended) for job, claimed in held.items()}
        return ended

    def _claimed(self, job: str, token: str) -> AbstractContextManager[ClaimedJob]:
        """Raises Fenced, JobFault or WebAway."""
        spec = self.web.claim(job, dispatch_token=token, claim=Claim(worker=self.worker))
        return holding(
            spec,
            web=self.web,
            bases=self.bases,
            work_dir=self.work_dir,
            leaving=self.leaving,
            leave_seconds=self.leave_seconds,
        )

    def _train(self, jobs: Sequence[ClaimedJob]) -> None:
        """To their ends."""
        for job in jobs:
            job.attempt(job.prepare)
        ready = [job for job in jobs if job.ended is None]
        if _alike(ready) and (ends := self._together(ready)) is not None:
            for job, end in zip(ready, ends, strict=True):
                if job.ended is None:
                    job.attempt(partial(_conclude, job, end))
        else:
            for job in ready:
                job.attempt(partial(self._alone, job))

    def _alone(self, job: ClaimedJob) -> None:
        # No error says so, and the attempt that failed may be another one: then half a batch at a time is only slower.
        out_of_memory = job.spec.failed_attempts > 0 and oom_kills() > self.oom_kills
        job.publish(
            adapter_train(
                job.base,
                job.examples,
                job.folder,
                recipe=job.spec.recipe,
                hyperparameters=job.spec.hyperparameters,
                watcher=job.lease,
                pace=self.pace,
                checkpoint=job.checkpoint,
                halved=out_of_memory,
                with_probe=True,
            )
        )

    def _together(self, jobs: Sequence[ClaimedJob]) -> Sequence[Outcome | Exception] | None:
        """What becomes of each; None if this base or recipe cannot be trained so.

        Whose training fails, or is stopped, is told while the others go on: it is no longer running for anybody.
        """
        recipe = jobs[0].spec.recipe
        try:
            base = jobs[0].base
            try:
                check_together(base, recipe)
            except UserFault:
                return None
            for job in jobs:
                job.lease.event(
                    "It is trained in one batch with other small jobs, and learns what it would alone."
                )
            with ThreadPoolExecutor(len(jobs), "ends") as telling:
                wishes = [
                    Wish(
                        job.examples,
                        job.folder,
                        job.spec.hyperparameters,
                        job.lease,
                        failed=partial(_tell, telling, job),
                    )
                    for job in jobs
                ]
                return adapters_train(base, wishes, recipe=recipe, pace=self.pace, with_probe=True)
        except Exception as error:
            return [error] * len(jobs)


def _alike(jobs: Sequence[ClaimedJob]) -> bool:
    """Several, of one base and one recipe, that begin at their first step."""
    if len(jobs) < 2:
        return False
    first = jobs[0].spec
    return all(
        (job.spec.base, job.spec.recipe) == (first.base, first.recipe)
        and job.checkpoint is None
        and job.spec.hyperparameters.type == "supervised"
        for job in jobs
    )


def _tell(telling: ThreadPoolExecutor, job: ClaimedJob, error: Exception) -> None:
    """In a thread of its own, since the web application may be away for minutes."""
    telling.submit(job.attempt, partial(_conclude, job, error))


def _conclude(job: ClaimedJob, end: Outcome | Exception) -> None:
    if isinstance(end, Exception):
        raise end
    job.publish(end)
