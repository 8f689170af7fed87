"""`manage.py dispatch` as a process: it moves jobs on, and ends when asked."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
import structlog
from django.db import transaction

from tests.webapp.company import Company
from tests.webapp.played_engine import PlayedEngine
from tests.webapp.played_trainer import PlayedTrainer
from tests.webapp.test_transitions import queued, running
from webapp.jobs.management.commands.dispatch import _guarded
from webapp.jobs.models import Job

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def dispatcher(stores: object, played_engine: PlayedEngine) -> Iterator[subprocess.Popen[bytes]]:
    env = {**os.environ, "ATTUNE_ENGINE_URL": played_engine.engine.url}
    process = subprocess.Popen([sys.executable, "manage.py", "dispatch"], env=env, stderr=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def ready(company: Company) -> Iterator[Job]:
    """A job that is queued beside one whose preparation hangs, since its row is held."""
    ready, hangs = queued(company), company.job()
    with transaction.atomic():
        Job.objects.select_for_update().get(id=hangs.id)
        yield ready


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_round_that_fails_is_logged_without_the_errors_text() -> None:
    row = "zanzibar"

    def broken_round() -> None:
        raise ValueError(row)

    with structlog.testing.capture_logs() as logs:
        assert _guarded(broken_round) is None
    [line] = logs
    assert line["step"] == "broken_round"
    assert line["error"].endswith("builtins.ValueError")
    assert row not in str(line)


@pytest.mark.slow
def test_from_validating_to_succeeded(
    company: Company, web: httpx.Client, dispatcher: subprocess.Popen[bytes]
) -> None:
    job, trainer = running(company, web, end_user=company.maren)
    waiting = company.job()
    PlayedTrainer(web).hello()
    until(lambda: Job.objects.get(id=waiting.id).state == "dispatched")
    trainer.complete(trainer.adapter())
    until(lambda: Job.objects.get(id=job.id).state == "succeeded")
    dispatcher.send_signal(signal.SIGTERM)
    assert dispatcher.wait(5) == 0


@pytest.mark.slow
def test_dispatching_does_not_wait_for_files(
    ready: Job, web: httpx.Client, dispatcher: subprocess.Popen[bytes]
) -> None:
    PlayedTrainer(web).hello()
    until(lambda: Job.objects.get(id=ready.id).state == "dispatched")
