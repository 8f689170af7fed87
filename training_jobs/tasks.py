"""The one task. It runs in the worker's child process, where the base model stays loaded between jobs."""

import logging
from functools import cache
from typing import TYPE_CHECKING

from adapters_store.traces import trace
from training_jobs.app import app
from training_jobs.client import WebApp
from training_jobs.messages import TASK
from training_jobs.settings import settings
from training_jobs.worker import OOM_KILLS, WORKER, leaving, running

if TYPE_CHECKING:
    from training_jobs.run import JobRunner

log = logging.getLogger(__name__)


@app.task(name=TASK, ignore_result=True)
def train(*, jobs: dict[str, str]) -> None:
    """Claim jobs with the tokens of this message and run them to ends that the web application knows of."""
    if leaving.is_set():
        return  # not claimed: the dispatcher sends them again
    with running():
        try:
            for job, ended in _runner().run(jobs).items():
                log.info("job %s: %s", job, ended)
        except Exception as error:
            # Celery would log its text. The jobs' leases lapse, and they go on elsewhere.
            log.error("jobs %s ended by an unexpected error\n%s", ", ".join(jobs), trace(error))


@cache
def _runner() -> "JobRunner":
    from training_jobs.base_models import WarmBase
    from training_jobs.run import JobRunner
    from training_jobs.training import Pace

    ours = settings()
    return JobRunner(
        worker=WORKER,
        web=WebApp(ours.web),
        bases=WarmBase(ours.models_dir, max_tokens=ours.max_model_len),
        work_dir=ours.work_dir,
        leaving=leaving,
        leave_seconds=ours.leave_seconds,
        pace=Pace(steps=ours.checkpoint_steps, seconds=ours.checkpoint_seconds),
        oom_kills=OOM_KILLS,
    )
