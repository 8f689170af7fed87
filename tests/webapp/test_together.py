"""Small jobs that nobody is free for go with one that they can be trained together with."""

import uuid

import httpx
import pytest
import redis
from django.db.models import F

from tests.webapp.adapter_rows import another_base
from tests.webapp.broker_queue import messages
from tests.webapp.company import Company, pair
from tests.webapp.played_trainer import PlayedTrainer
from training_jobs.messages import Checkpoint
from webapp.config.faults import Unavailable
from webapp.jobs import dispatcher, turns
from webapp.jobs.create import Wishes
from webapp.jobs.dispatcher import dispatch_all, prepare_all
from webapp.jobs.models import Job, Share, State
from webapp.tenants.models import Plan

pytestmark = pytest.mark.django_db(transaction=True)


def jobs_of(company: Company, count: int, **fields: object) -> list[str]:
    file = company.file()
    made = [company.job(training_file=file, **fields).id.hex for _ in range(count)]
    prepare_all()
    return made


def test_they_share_a_message_and_are_claimed_one_by_one(
    company: Company, other_company: Company, web: httpx.Client, queue: redis.Redis
) -> None:
    made = {*jobs_of(company, 2), *jobs_of(other_company, 1)}
    trainer = PlayedTrainer(web)
    trainer.hello(together=16)
    assert dispatch_all() == 1
    [message] = messages(queue)
    assert {*message} == made
    assert len({*message.values()}) == 3, "each has a token of its own"
    specs = []
    for job, token in message.items():
        assert trainer.claim(job, token).status_code == 200
        specs.append(trainer.spec)
    assert len({spec.token for spec in specs}) == 3
    for trainer.spec in specs:
        assert trainer.heartbeat().status_code == 200
        assert trainer.complete(trainer.adapter()).json()["state"] == "gating"


def test_no_more_than_the_trainer_wants(company: Company, web: httpx.Client, queue: redis.Redis) -> None:
    made = jobs_of(company, 4)
    Plan.objects.update(running_jobs=10)
    PlayedTrainer(web).hello(together=3)
    assert dispatch_all() == 1
    [message] = messages(queue)
    assert [*message] == made[:3], "in their order"


def test_a_base_that_is_not_trained_together_is_sent_one_job_at_a_time(
    company: Company, web: httpx.Client, queue: redis.Redis
) -> None:
    jobs_of(company, 3)
    PlayedTrainer(web).hello(together=16, alone=("tiny",))
    assert dispatch_all() == 1
    assert [len(message) for message in messages(queue)] == [1]


def test_a_free_trainer_of_its_own_is_better(company: Company, web: httpx.Client, queue: redis.Redis) -> None:
    jobs_of(company, 5)
    for _ in range(2):
        PlayedTrainer(web).hello(together=16)
    assert dispatch_all() == 2
    assert sorted(len(message) for message in messages(queue)) == [2, 3], "and the rest is shared out"


def test_a_message_is_for_whichever_trainer_takes_it(
    company: Company, web: httpx.Client, queue: redis.Redis
) -> None:
    jobs_of(company, 4)
    PlayedTrainer(web).hello(together=16)
    PlayedTrainer(web).hello(together=1)
    assert dispatch_all() == 2
    assert sorted(len(message) for message in messages(queue)) == [1, 1], "it may be the one with a CPU"


def test_a_ride_takes_nobody_elses_turn(
    company: Company, other_company: Company, web: httpx.Client, queue: redis.Redis
) -> None:
    """The virtual clock stands still, or who waits for a turn of its own would lose its place to who rides along."""
    Share.objects.create(tenant=company.tenant, served=5_000, clock=100)
    mine, theirs = jobs_of(company, 1), jobs_of(other_company, 1)
    PlayedTrainer(web).hello(together=16)
    dispatch_all()
    [message] = messages(queue)
    assert [*message] == [*theirs, *mine]
    assert turns.clock() == 100
    assert Share.objects.get(tenant=company.tenant).served > 5_000, "and it is charged for"


def test_a_message_of_several_is_for_one_trainer(
    company: Company, web: httpx.Client, queue: redis.Redis
) -> None:
    jobs_of(company, 3)
    PlayedTrainer(web).hello(together=16)
    assert dispatch_all() == 1
    jobs_of(company, 1)
    assert dispatch_all() == 0
    PlayedTrainer(web).hello()
    assert dispatch_all() == 1, "the second trainer is free"


def test_a_plans_cap_holds(
    company: Company, other_company: Company, web: httpx.Client, queue: redis.Redis
) -> None:
    Plan.objects.update(running_jobs=2)
    mine, theirs = jobs_of(company, 4), jobs_of(other_company, 1)
    PlayedTrainer(web).hello(together=16)
    dispatch_all()
    [message] = messages(queue)
    assert {*message} == {*mine[:2], *theirs}
    assert (
        Share.objects.get(tenant=company.tenant).served
        == 2 * Share.objects.get(tenant=other_company.tenant).served
    ), "each is charged for"


@pytest.mark.slow
@pytest.mark.parametrize("which", ["first", "second"])
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"failed_attempts": 1}, id="failed-once"),
        pytest.param({"checkpoint": Checkpoint(sha256="0" * 64, size=1, step=1).model_dump()}, id="begun"),
        pytest.param({"recipe": {"method": "direft", "position": "all", "rank": 8}}, id="all-positions"),
        pytest.param({"recipe": {"method": "lora", "position": "prefill", "rank": 8}}, id="another-recipe"),
        pytest.param({"base": "another"}, id="another-base"),
        pytest.param({"examples": 201}, id="large"),
        pytest.param({"epochs": 11}, id="long"),
        pytest.param({"validation": True}, id="with-a-file-to-judge-by"),
        pytest.param({"pairs": True}, id="preference-pairs"),
    ],
)
def test_what_does_not_fit_goes_alone(
    company: Company, web: httpx.Client, queue: redis.Redis, change: dict[str, object], which: str
) -> None:
    files = [company.file() for _ in range(2)]
    odd = ["first", "second"].index(which)
    if change.get("pairs"):
        files[odd] = company.file([pair(number) for number in range(12)])
    made = [company.job(training_file=file, wishes=Wishes(type=file.job_type)) for file in files]
    prepare_all()
    row = Job.objects.filter(id=made[odd].id)
    match change:
        case {"base": _}:
            row.update(base=another_base())
        case {"examples": count}:
            files[odd].examples_count = count
            files[odd].save()
        case {"pairs": _}:
            pass
        case {"epochs": count}:
            row.update(hyperparameters=made[odd].hyperparameters | {"n_epochs": count})
        case {"validation": _}:
            row.update(validation_file=company.file())
        case _:
            row.update(**change)
    PlayedTrainer(web).hello(bases=("tiny", "other-base"), together=16)
    assert dispatch_all() == 1
    assert Job.objects.filter(state=State.QUEUED).count() == 1


def test_without_a_broker_all_of_them_wait_again(
    company: Company, web: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs_of(company, 3)
    PlayedTrainer(web).hello(together=16)

    def away(**message: object) -> None:
        raise Unavailable("gone", code="broker_unavailable")

    monkeypatch.setattr(dispatcher, "send_train", away)
    with pytest.raises(Unavailable):
        dispatch_all()
    assert Job.objects.filter(state=State.QUEUED).count() == 3


def test_one_that_ended_a_trainer_does_not_do_so_to_the_same_others_again(
    company: Company, web: httpx.Client, queue: redis.Redis
) -> None:
    """After a lapsed lease each goes alone, so only the culprit is quarantined."""
    made = jobs_of(company, 3)
    PlayedTrainer(web).hello(together=16)
    dispatch_all()
    messages(queue)
    Job.objects.update(state=State.QUEUED, failed_attempts=F("failed_attempts") + 1, dispatch=uuid.uuid4())
    PlayedTrainer(web).hello(together=16)
    assert dispatch_all() == 2
    assert sorted(len(message) for message in messages(queue)) == [1, 1]
    assert Job.objects.get(state=State.QUEUED).id.hex == made[2]
