"""Why a job waits and for how many others, as its owner reads it; and that nothing else of the others shows."""

import json
import os
import time
from collections.abc import Callable
from datetime import timedelta

import httpx
import openai
import pytest
import redis
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from tests.webapp.adapter_rows import another_base
from tests.webapp.company import Company, talks
from tests.webapp.dashboard.conftest import browser
from tests.webapp.played_engine import PlayedEngine
from tests.webapp.played_trainer import PlayedTrainer
from tests.webapp.test_transitions import claim, queued, running
from webapp.engine import Engine
from webapp.jobs.delay import Delay, delays_of
from webapp.jobs.dispatcher import dispatch_all
from webapp.jobs.gate import gate_all
from webapp.jobs.models import Job, Share, State
from webapp.jobs.waiting import job_wait
from webapp.tenants.models import Plan

pytestmark = pytest.mark.django_db(transaction=True)
NO_ENGINE = Engine("http://127.0.0.1:9", "k")


@pytest.fixture(autouse=True)
def broker(stores: object) -> None:
    redis.Redis.from_url(os.environ["ATTUNE_BROKER_URL"]).flushall()


def delay(job: Job) -> Delay | None:
    row = Job.objects.select_related("tenant__plan", "base").get(id=job.id)
    return delays_of([row]).get(job.id)


def test_no_trainer_of_the_base(company: Company, web: httpx.Client) -> None:
    job = queued(company)
    PlayedTrainer(web).hello(bases=("another",))
    found = delay(job)
    assert (found.reason, found.position) == ("no_trainer", 1)
    assert "No trainer of tiny is running" in found.message


def test_busy_trainers_and_the_place_in_line(
    company: Company, other_company: Company, web: httpx.Client
) -> None:
    """The other company's flood came first; by turns, ours is second."""
    PlayedTrainer(web).hello(busy=True)
    theirs = [queued(other_company) for _ in range(3)]
    ours = [queued(company) for _ in range(2)]
    assert [delay(job).position for job in (*theirs, *ours)] == [1, 3, 5, 2, 4]
    assert delay(ours[0]).reason == "trainers_busy"
    Share.objects.create(tenant=other_company.tenant, served=1000, clock=0)
    assert [delay(job).position for job in ours] == [1, 2]


def test_jobs_for_the_same_trainers_are_in_one_line(company: Company, web: httpx.Client) -> None:
    PlayedTrainer(web).hello(busy=True, bases=("tiny", "other-base"))
    first, second, third = (queued(company) for _ in range(3))
    Job.objects.filter(id=first.id).update(base=another_base())
    assert delay(second).position == 2
    PlayedTrainer(web).hello(busy=True)
    assert delay(third).position == 3, "they can go to either"


def test_a_free_trainer(company: Company, web: httpx.Client) -> None:
    job = queued(company)
    PlayedTrainer(web).hello()
    assert delay(job).reason == "starting"
    dispatch_all()
    assert (delay(job).reason, delay(job).position) == ("starting", None)
    Job.objects.filter(id=job.id).update(state=State.QUEUED)
    claim(job, PlayedTrainer(web))
    assert delay(job) is None, "it trains"


def test_the_plans_cap(company: Company, web: httpx.Client) -> None:
    Plan.objects.update(running_jobs=1)
    running(company, web)
    PlayedTrainer(web).hello()
    found = delay(queued(company))
    assert (found.reason, found.position) == ("plan_cap", 1)
    assert "Your plan trains one job at a time." in found.message


def test_an_engine_that_is_away_is_said_once(
    company: Company, web: httpx.Client, played_engine: PlayedEngine
) -> None:
    job, trainer = running(company, web)
    trainer.complete(trainer.adapter())
    assert delay(job) is None, "its turn has not come"
    for _ in range(3):
        assert not gate_all(asked=NO_ENGINE)
    assert delay(job).reason == "engine"
    assert "No engine is running" in delay(job).message
    assert job.events.filter(message__startswith="No engine").count() == 1
    assert gate_all(asked=played_engine.engine)
    assert Job.objects.get(id=job.id).state == State.SUCCEEDED, "and it is tried at once when there is one"
    assert delay(job) is None


def test_files_that_cannot_be_read(company: Company) -> None:
    job = company.job()
    assert delay(job) is None
    job_wait(
        job=job.id, state=State.VALIDATING, pause=timedelta(seconds=30), reason="The files cannot be read."
    )
    assert delay(job) == Delay("files", "The files cannot be read.")


def test_after_a_fault_that_passes(company: Company, web: httpx.Client) -> None:
    job, trainer = running(company, web)
    PlayedTrainer(web).hello()
    trainer.fail(code="storage_unavailable", message="It was away.", retry=True, counts=False)
    assert delay(job) == Delay("fault", "It was away. Trying again from the last checkpoint, in 5 seconds.")
    Job.objects.update(wait_until=Now() - timedelta(seconds=1))
    assert delay(job).reason == "starting"


def test_a_longer_list_takes_no_more_queries(company: Company, web: httpx.Client) -> None:
    PlayedTrainer(web).hello(busy=True)
    counts = []
    for _ in range(2):
        queued(company)
        jobs = [*Job.objects.select_related("tenant__plan", "base")]
        with CaptureQueriesContext(connection) as asked:
            assert len(delays_of(jobs)) == len(jobs)
        counts.append(len(asked))
    assert counts[0] == counts[1]


def test_what_the_client_is_told(
    company: Company, other_company: Company, web: httpx.Client, openai_client: Callable[[str], openai.OpenAI]
) -> None:
    """A number for the others, and never their ids, names, counts or speed."""
    theirs = [queued(other_company, training_file=other_company.file(talks(77))) for _ in range(2)]
    done = queued(other_company)
    Job.objects.filter(id=done.id).update(state=State.SUCCEEDED, step=9, report={"train_seconds": 1234.5})
    PlayedTrainer(web).hello(busy=True)
    job = queued(company)
    client = openai_client(company.key)
    told = client.fine_tuning.jobs.retrieve(job.public_id)
    assert told.estimated_finish is None
    assert told.to_dict()["waiting"] == {
        "reason": "trainers_busy",
        "message": "All trainers are busy. The job starts by itself in its turn.",
        "position": 2,
        "training_seconds": None,
    }
    assert [each.to_dict() for each in client.fine_tuning.jobs.list()] == [told.to_dict()]
    text = json.dumps(told.to_dict())
    for other in (*theirs, done):
        assert other.id.hex not in text
        assert other.tenant.id.hex not in text


def test_a_running_job_says_when_it_ends(
    company: Company, web: httpx.Client, openai_client: Callable[[str], openai.OpenAI]
) -> None:
    job, trainer = running(company, web)
    client = openai_client(company.key)
    assert client.fine_tuning.jobs.retrieve(job.public_id).estimated_finish is None, "nothing is known yet"
    trainer.heartbeat(
        step=4, total_steps=5, events=[{"message": "s", "metrics": {"step": 4, "train_loss": 1.0}}]
    )
    told = client.fine_tuning.jobs.retrieve(job.public_id)
    assert time.time() <= told.estimated_finish < time.time() + 60
    assert told.to_dict()["waiting"] is None


def test_the_page_of_a_job_says_it(company: Company, web: httpx.Client) -> None:
    PlayedTrainer(web).hello(busy=True)
    mine = {"end_user": company.teammate.end_user}
    queued(company, **mine)
    job = queued(company, **mine)
    page = browser(company.teammate).get(f"/training/{job.id}").content.decode()
    assert "All trainers are busy." in page
    assert 'Place <span class="number">2</span> in line.' in page
