"""A job that cannot move on keeps nobody else waiting."""

from datetime import timedelta

import httpx
import pytest
from django.db.models.functions import Now

from adapters_store.errors import StorageUnavailable
from adapters_store.manifest import Manifest
from adapters_store.s3 import ObjectStore, object_key
from tests.webapp.adapter_rows import another_base
from tests.webapp.company import Company, talks
from tests.webapp.played_engine import PlayedEngine
from tests.webapp.test_transitions import running
from webapp.datasets.storage import store
from webapp.engine import Engine
from webapp.jobs import dispatcher
from webapp.jobs import gate as gates
from webapp.jobs.dispatcher import prepare_all
from webapp.jobs.gate import MAX_TRIALS, gate_all
from webapp.jobs.models import Job, Share, State

pytestmark = pytest.mark.django_db(transaction=True)


def gating(company: Company, web: httpx.Client, *, seed: int = 0) -> Job:
    """A job at the gate; those made first are tried first."""
    job, trainer = running(company, web)
    trainer.complete(trainer.adapter(seed=seed))
    job.refresh_from_db()
    assert job.state == State.GATING
    return job


def state(job: Job) -> str:
    return Job.objects.get(id=job.id).state


def reasons(job: Job) -> list[str]:
    return list(job.events.filter(level="warn").order_by("id").values_list("message", flat=True))


def time_passes() -> None:
    Job.objects.update(wait_until=Now() - timedelta(seconds=1))


@pytest.mark.slow
def test_a_base_that_no_engine_serves(
    company: Company, web: httpx.Client, played_engine: PlayedEngine
) -> None:
    first, second = gating(company, web), gating(company, web)
    Job.objects.filter(id=first.id).update(base=another_base())
    assert gate_all(asked=played_engine.engine)
    assert (state(first), state(second)) == (State.GATING, State.SUCCEEDED)
    asked = len(played_engine.asked)
    gate_all(asked=played_engine.engine)
    assert len(played_engine.asked) == asked, "it is set aside"
    for _ in range(2 * MAX_TRIALS):
        time_passes()
        gate_all(asked=played_engine.engine)
    assert state(first) == State.GATING, "an engine for it may come"
    assert reasons(first) == [
        "No engine serves other-base at the moment. The adapter will be tried again."
    ], "said once"
    played_engine.served = "other-base"
    time_passes()
    gate_all(asked=played_engine.engine)
    assert state(first) == State.SUCCEEDED


@pytest.mark.slow
def test_an_adapter_over_which_the_engine_breaks_down(
    company: Company, web: httpx.Client, played_engine: PlayedEngine
) -> None:
    first, second = gating(company, web, seed=1), gating(company, web, seed=2)
    played_engine.broken = Manifest.model_validate(first.manifest).name
    for trial in range(MAX_TRIALS):
        assert state(first) == State.GATING, trial
        time_passes()
        gate_all(asked=played_engine.engine)
    assert state(second) == State.SUCCEEDED
    first.refresh_from_db()
    assert (first.state, first.error_code) == (State.FAILED, "adapter_trial_failed")
    assert "status 500" in first.error_message


@pytest.mark.slow
def test_an_engine_that_breaks_down_as_the_base_says_nothing_about_adapters(
    company: Company, web: httpx.Client, played_engine: PlayedEngine
) -> None:
    job = gating(company, web)
    played_engine.broken = "tiny"
    for _ in range(MAX_TRIALS + 1):
        time_passes()
        gate_all(asked=played_engine.engine)
    assert state(job) == State.GATING
    assert reasons(job) == ["The engine cannot answer at the moment. The adapter will be tried again."]


def test_without_an_engine_all_wait(company: Company, web: httpx.Client) -> None:
    job = gating(company, web)
    assert not gate_all(asked=Engine("http://127.0.0.1:9", "k"))
    job.refresh_from_db()
    assert (job.state, job.wait_until) == (State.GATING, None), "it is tried at once when there is one"
    assert [reason[:20] for reason in reasons(job)] == ["No engine is running"]


@pytest.mark.slow
def test_a_fault_of_ours_at_the_gate(
    company: Company, web: httpx.Client, played_engine: PlayedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = gating(company, web), gating(company, web)
    right = gates.gate

    def wrong(*, job: object, asked: Engine) -> None:
        if job == first.id:
            raise ZeroDivisionError
        right(job=job, asked=asked)

    monkeypatch.setattr(gates, "gate", wrong)
    gate_all(asked=played_engine.engine)
    assert (state(first), state(second)) == (State.GATING, State.SUCCEEDED)
    assert "our fault" in reasons(first)[0]


def test_what_the_engine_is_asked_may_be_gone(
    company: Company, web: httpx.Client, played_engine: PlayedEngine
) -> None:
    job = gating(company, web)
    store().delete(object_key(company.tenant.storage_id, job.probe["sha256"]))
    gate_all(asked=played_engine.engine)
    job.refresh_from_db()
    assert (job.state, job.error_code) == (State.FAILED, "probe_invalid")


def with_validation(company: Company, count: int) -> Job:
    return company.job(
        training_file=company.file(talks(count)), validation_file=company.file(talks(30)[count:])
    )


def test_a_file_that_is_gone(company: Company) -> None:
    first, second = with_validation(company, 5), with_validation(company, 6)
    store().delete(object_key(company.tenant.storage_id, first.training_file.conversations_sha256))
    prepare_all()
    first.refresh_from_db()
    assert (first.state, first.error_code) == (State.FAILED, "file_lost")
    assert state(second) == State.QUEUED


def test_files_are_prepared_by_turns(
    company: Company, other_company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood of one company's is not first, because it came first; and who is behind in turns goes before it."""
    file, prepared = company.file(), []
    flood = [company.job(training_file=file) for _ in range(3)]
    theirs = other_company.job()
    right = dispatcher.job_prepare

    def noted(*, job: object) -> None:
        prepared.append(job)
        right(job=job)

    monkeypatch.setattr(dispatcher, "job_prepare", noted)
    prepare_all()
    assert prepared == [flood[0].id, theirs.id, flood[1].id, flood[2].id]
    Share.objects.create(tenant=other_company.tenant, served=1000, clock=0)
    later = [other_company.job(), company.job(training_file=file)]
    prepare_all()
    assert prepared[4:] == [later[1].id, later[0].id]


def test_the_gate_takes_turns(
    company: Company, other_company: Company, web: httpx.Client, played_engine: PlayedEngine
) -> None:
    jobs = [gating(company, web, seed=seed) for seed in range(2)] + [gating(other_company, web)]
    gate_all(asked=played_engine.engine)
    asked = [model.partition("/")[0] for model in played_engine.asked if "/" in model]
    ours, theirs = company.tenant.id.hex, other_company.tenant.id.hex
    assert asked == [ours, theirs, ours]
    assert {state(job) for job in jobs} == {State.SUCCEEDED}


def test_an_object_that_cannot_be_read(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = with_validation(company, 5), with_validation(company, 6)
    lost = object_key(company.tenant.storage_id, first.training_file.conversations_sha256)
    right = ObjectStore.stream

    def stream(self: ObjectStore, key: str) -> object:
        if key == lost:
            raise StorageUnavailable("Object storage answered with the error InternalError.")
        return right(self, key)

    monkeypatch.setattr(ObjectStore, "stream", stream)
    for _ in range(2):
        prepare_all()
    assert (state(first), state(second)) == (State.VALIDATING, State.QUEUED)
    assert reasons(first) == ["The files cannot be read at the moment. Trying again."]
    monkeypatch.undo()
    time_passes()
    prepare_all()
    assert state(first) == State.QUEUED
