"""Who goes next, and that the broker is disposable."""

import threading
from datetime import timedelta

import httpx
import pytest
import redis
from django.db import connection
from django.db.models.functions import Now

from tests.webapp.adapter_rows import another_base
from tests.webapp.broker_queue import messages
from tests.webapp.company import Company, base_model
from tests.webapp.played_trainer import PlayedTrainer
from webapp.config.faults import Unavailable
from webapp.jobs import broker
from webapp.jobs.dispatcher import dispatch_all, prepare_all
from webapp.jobs.lifecycle import dispatch_lapse
from webapp.jobs.models import Job, Outbox, Worker

pytestmark = pytest.mark.django_db(transaction=True)


def claim(trainer: PlayedTrainer, message: dict[str, str]) -> int:
    """Of a message with one job."""
    [(job, token)] = message.items()
    return trainer.claim(job, token).status_code


def test_a_job_reaches_a_trainer(company: Company, web: httpx.Client, queue: redis.Redis) -> None:
    job = company.job()
    prepare_all()
    assert dispatch_all() == 0, "nobody is there to train"
    trainer = PlayedTrainer(web)
    trainer.hello()
    assert dispatch_all() == 1
    [message] = messages(queue)
    assert [*message] == [job.id.hex]
    assert claim(trainer, message) == 200
    company.job()
    prepare_all()
    assert dispatch_all() == 0, "the claim says that it is busy, before its next hello does"


@pytest.mark.slow
def test_only_as_many_as_there_is_room_for(company: Company, web: httpx.Client, queue: redis.Redis) -> None:
    for _ in range(4):
        company.job()
    prepare_all()
    for busy in (False, False, True):
        PlayedTrainer(web).hello(busy=busy)
    PlayedTrainer(web).hello(bases=("another",))
    assert dispatch_all() == 2
    assert dispatch_all() == 0, "both messages are still unclaimed"
    Worker.objects.update(last_seen=Now() - timedelta(minutes=1))
    [first, _] = messages(queue)
    trainer = PlayedTrainer(web)
    claim(trainer, first)
    assert dispatch_all() == 0, "everyone has gone"
    PlayedTrainer(web).hello()
    PlayedTrainer(web).hello()
    assert dispatch_all() == 1, "one of the two is expected by the other message"


def test_a_trainer_of_two_bases_is_one_trainer(
    company: Company, web: httpx.Client, queue: redis.Redis
) -> None:
    for base in (base_model(), another_base()):
        Job.objects.filter(id=company.job().id).update(base=base)
    prepare_all()
    PlayedTrainer(web).hello(bases=("tiny", "other-base"))
    assert dispatch_all() == 1
    assert dispatch_all() == 0
    PlayedTrainer(web).hello(bases=("tiny", "other-base"))
    assert dispatch_all() == 1, "the second one is for the other message"


def test_the_versatile_trainer_is_left_for_others(
    company: Company, web: httpx.Client, queue: redis.Redis
) -> None:
    for bases in (("tiny", "other-base"), ("tiny",)):
        PlayedTrainer(web).hello(bases=bases)
    for base in (base_model(), another_base()):
        Job.objects.filter(id=company.job().id).update(base=base)
    prepare_all()
    assert dispatch_all() == 2


@pytest.mark.slow
def test_dispatchers_share_the_room(company: Company, web: httpx.Client, queue: redis.Redis) -> None:
    for _ in range(4):
        company.job()
    prepare_all()
    PlayedTrainer(web).hello()
    barrier, sent = threading.Barrier(4), []

    def dispatch() -> None:
        barrier.wait()
        sent.append(dispatch_all())
        connection.close()

    threads = [threading.Thread(target=dispatch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(sent) == 1


@pytest.mark.slow
def test_a_flood_does_not_starve_others(
    company: Company, other_company: Company, web: httpx.Client, queue: redis.Redis
) -> None:
    """30 jobs of one tenant were there first; the other tenant's one gets the second trainer."""
    file = company.file()
    for _ in range(30):
        company.job(training_file=file)
    mine = other_company.job()
    for _ in range(2):
        prepare_all()
    trainers = [PlayedTrainer(web), PlayedTrainer(web)]
    for trainer in trainers:
        trainer.hello()
    assert dispatch_all() == 2
    assert [mine.id.hex] in [[*message] for message in messages(queue)]


def test_a_flushed_broker_loses_nothing(company: Company, web: httpx.Client, queue: redis.Redis) -> None:
    job = company.job()
    prepare_all()
    trainer = PlayedTrainer(web)
    trainer.hello()
    dispatch_all()
    [lost] = messages(queue)
    queue.flushall()
    assert Outbox.objects.filter(job=job).exists()
    Job.objects.update(dispatched_at=Now() - timedelta(seconds=61))
    dispatch_lapse()
    trainer.hello()
    assert dispatch_all() == 1
    [message] = messages(queue)
    assert claim(trainer, lost) == 410, "should the lost one turn up after all"
    assert claim(trainer, message) == 200


@pytest.mark.slow
def test_a_broker_that_is_away(company: Company, web: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    job = company.job()
    prepare_all()
    PlayedTrainer(web).hello()
    broker._celery.cache_clear()
    monkeypatch.setattr(broker, "settings", lambda: type("S", (), {"broker_url": "redis://127.0.0.1:9/0"}))
    with pytest.raises(Unavailable):
        dispatch_all()
    broker._celery.cache_clear()
    assert Job.objects.get(id=job.id).state == "queued"


@pytest.mark.slow
def test_dispatchers_side_by_side(company: Company, web: httpx.Client, queue: redis.Redis) -> None:
    """Two processes at the same moment send each job once."""
    jobs = [company.job() for _ in range(4)]
    prepare_all()
    for _ in range(4):
        PlayedTrainer(web).hello()
    barrier = threading.Barrier(4)

    def dispatch() -> None:
        barrier.wait()
        dispatch_all()
        connection.close()

    threads = [threading.Thread(target=dispatch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sent = [job for message in messages(queue) for job in message]
    assert sorted(sent) == sorted(job.id.hex for job in jobs)
