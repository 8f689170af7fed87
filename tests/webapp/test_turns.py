"""Fairness in the dispatcher: plans' weights and caps, and what a turn costs its tenant."""

import os

import httpx
import pytest
import redis
from django.db.models.functions import Now

from tests.webapp.adapter_rows import another_base
from tests.webapp.company import Company, company_create, pair
from tests.webapp.played_trainer import PlayedTrainer
from webapp.datasets.models import File
from webapp.jobs.create import Wishes
from webapp.jobs.dispatcher import dispatch_all, prepare_all
from webapp.jobs.lifecycle import dispatch_undo, job_cancel, job_pause, job_resume
from webapp.jobs.models import Job, Share, State
from webapp.jobs.turns import unprepared
from webapp.tenants.models import Plan, Tenant

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def broker(stores: object) -> None:
    redis.Redis.from_url(os.environ["ATTUNE_BROKER_URL"]).flushall()


def plan(company: Company, **fields: int) -> None:
    Plan.objects.create(name=company.tenant.name, **fields)
    Tenant.objects.filter(id=company.tenant.id).update(plan=company.tenant.name)
    company.tenant.refresh_from_db()


def queue(company: Company, count: int, *, file: File | None = None, n_epochs: int = 1) -> list[Job]:
    file = file or company.file()
    wishes = Wishes(type=file.job_type, n_epochs=n_epochs)
    jobs = [company.job(training_file=file, wishes=wishes) for _ in range(count)]
    prepare_all()
    return jobs


def turns(web: httpx.Client, count: int) -> list[str]:
    """Whose job each of so many turns of one trainer is."""
    PlayedTrainer(web).hello()
    names = []
    for _ in range(count):
        assert dispatch_all() == 1
        row = Job.objects.select_related("tenant").get(state=State.DISPATCHED)
        names.append(row.tenant.name)
        # All of it is trained.
        Job.objects.filter(id=row.id).update(state=State.SUCCEEDED, step=1000)
    return names


def test_files_that_could_not_be_read_go_behind_all_others(company: Company, other_company: Company) -> None:
    broken, younger = company.job(), other_company.job()
    assert unprepared() == broken.id
    # Its pause is over.
    Job.objects.filter(id=broken.id).update(wait_until=Now())
    assert unprepared() == younger.id
    Job.objects.filter(id=younger.id).delete()
    assert unprepared() == broken.id


@pytest.mark.slow
def test_one_trainer_is_shared_although_one_company_was_there_first(
    company: Company, other_company: Company, web: httpx.Client
) -> None:
    queue(company, 4)
    queue(other_company, 2)
    assert turns(web, 5) == ["Acme", "Umbrella", "Acme", "Umbrella", "Acme"]


@pytest.mark.slow
def test_a_plan_of_more_weight_gets_more_turns(
    company: Company, other_company: Company, web: httpx.Client
) -> None:
    plan(other_company, weight=3)
    queue(company, 4)
    queue(other_company, 6)
    assert sorted(turns(web, 8)) == ["Acme"] * 2 + ["Umbrella"] * 6


@pytest.mark.slow
def test_a_long_job_costs_more_than_a_short_one(
    company: Company, other_company: Company, web: httpx.Client
) -> None:
    queue(company, 2, n_epochs=4)
    queue(other_company, 5)
    assert sorted(turns(web, 5)) == ["Acme"] + ["Umbrella"] * 4


@pytest.mark.slow
def test_a_preference_pair_costs_as_much_as_two_answers(
    company: Company, other_company: Company, web: httpx.Client
) -> None:
    queue(company, 3, file=company.file([pair(number) for number in range(12)]))
    queue(other_company, 5)
    assert sorted(turns(web, 6)) == ["Acme"] * 2 + ["Umbrella"] * 4


def test_a_plan_has_a_cap(company: Company, other_company: Company, web: httpx.Client) -> None:
    plan(company, running_jobs=2)
    queue(company, 5)
    for _ in range(4):
        PlayedTrainer(web).hello()
    assert dispatch_all() == 2
    queue(other_company, 1)
    assert dispatch_all() == 1, "the others are not kept back by it"
    first = Job.objects.filter(tenant=company.tenant, state=State.DISPATCHED).first()
    job_cancel(job=first)
    assert dispatch_all() == 1


def test_work_that_is_never_done_is_given_back(
    company: Company, other_company: Company, web: httpx.Client
) -> None:
    """Who cancels a day's training in its first minute does not wait for a day."""
    [job] = queue(company, 1, n_epochs=50)
    PlayedTrainer(web).hello()
    dispatch_all()
    assert Share.objects.get(tenant=company.tenant).served == 600
    Job.objects.filter(id=job.id).update(step=30)
    job_cancel(job=job)
    dispatch_all()
    share = Share.objects.get(tenant=company.tenant)
    assert share.served == pytest.approx(120), "30 steps of 4 of the 12 examples"
    dispatch_all()
    share.refresh_from_db()
    assert share.served == pytest.approx(120), "once"


def test_a_job_is_charged_once(company: Company, web: httpx.Client) -> None:
    """However often the broker loses it, a trainer is restarted, or its owner pauses it."""
    [job] = queue(company, 1)
    PlayedTrainer(web).hello()
    for _ in range(3):
        assert dispatch_all() == 1
        dispatch_undo(job=job.id)
    assert dispatch_all() == 1
    job_pause(job=job)
    job_resume(job=job)
    assert dispatch_all() == 1
    assert Share.objects.get().served == 12


def test_who_waits_for_a_base_that_nobody_has_takes_no_slot(
    company: Company, other_company: Company, web: httpx.Client
) -> None:
    """Two trainers are enough for the two companies that they can train for."""
    nowhere = queue(company_create("Nowhere"), 1)
    Job.objects.filter(id=nowhere[0].id).update(base=another_base())
    queue(company, 3)
    queue(other_company, 1, n_epochs=50)
    for _ in range(2):
        PlayedTrainer(web).hello()
    Share.objects.create(tenant=other_company.tenant, served=1000, clock=0)
    assert dispatch_all() == 2
    served = Job.objects.filter(state=State.DISPATCHED).values_list("tenant__name", flat=True)
    assert sorted(served) == ["Acme", "Umbrella"], "a slot for each, although Umbrella has had more"
