"""A job is not charged for the minutes in which nobody could hear its trainer."""

from datetime import timedelta

import httpx
import pytest
from django.db.models import F

from tests.webapp.company import Company
from tests.webapp.played_trainer import PlayedTrainer
from tests.webapp.test_transitions import running, state
from webapp.jobs.hearing import Hearing
from webapp.jobs.lifecycle import lease_lapse
from webapp.jobs.models import Job, Worker

pytestmark = pytest.mark.django_db(transaction=True)


class Clock:
    """One that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def silent_for(seconds: float) -> None:
    Worker.objects.update(last_seen=F("last_seen") - timedelta(seconds=seconds))


def test_it_hears_once_it_has_listened_for_two_heartbeats(company: Company, web: httpx.Client) -> None:
    clock = Clock()
    hearing = Hearing(clock)
    assert not hearing.steady(), "there is nobody"
    PlayedTrainer(web).hello()
    assert not hearing.steady()
    clock.seconds += 10
    assert hearing.steady()


def test_after_a_break_trainers_get_time_to_say_that_they_are_there(
    company: Company, web: httpx.Client
) -> None:
    clock, trainer = Clock(), PlayedTrainer(web)
    hearing = Hearing(clock)
    trainer.hello()
    hearing.steady()
    clock.seconds += 60
    silent_for(12)
    assert not hearing.steady()
    trainer.hello()
    assert not hearing.steady()
    clock.seconds += 10
    assert hearing.steady()


def test_one_of_several_that_falls_silent_is_missed(company: Company, web: httpx.Client) -> None:
    clock, others = Clock(), PlayedTrainer(web)
    hearing = Hearing(clock)
    PlayedTrainer(web).hello()
    hearing.steady()
    silent_for(60)
    others.hello()
    clock.seconds += 10
    assert hearing.steady()


def test_unheard_a_lease_is_good_for_minutes_more_and_the_trainer_goes_on(
    company: Company, web: httpx.Client
) -> None:
    job, trainer = running(company, web)
    late = Job.objects.filter(id=job.id)
    late.update(lease_until=F("lease_until") - timedelta(minutes=5))
    assert lease_lapse(heard=False) == 0
    assert trainer.heartbeat().json()["state"] == "running"
    assert lease_lapse(heard=True) == 0, "the heartbeat began the lease anew"
    late.update(lease_until=F("lease_until") - timedelta(minutes=6))
    assert lease_lapse(heard=False) == 1, "nobody came back"
    assert (state(job), late.get().failed_attempts) == ("queued", 1)
