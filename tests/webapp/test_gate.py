"""The gate over the protocol: what the engine says and what was held out decide what becomes of an adapter."""

from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.db.models import F

from adapters_store.s3 import manifest_key, object_key
from tests.webapp.chat.conftest import engine  # noqa: F401 (the fixture)
from tests.webapp.chat.faulty_engine import FaultyEngine
from tests.webapp.company import Company
from tests.webapp.played_engine import PlayedEngine
from tests.webapp.test_transitions import running
from tests.webapp.test_verdict import comparison
from webapp.adapters.adapters import adapter_activate, adapter_delete
from webapp.adapters.models import Adapter
from webapp.api.shapes import adapter_shape, job_shape
from webapp.config.faults import BadRequest
from webapp.datasets.models import ObjectRemoval
from webapp.datasets.storage import store
from webapp.jobs.gate import gate, gate_all
from webapp.jobs.models import Job, State
from webapp.jobs.sweeper import objects_sweep
from webapp.tenants.scope import Scope
from webapp.usage.models import UsageRow

pytestmark = pytest.mark.django_db(transaction=True)


def gated(
    company: Company,
    web: httpx.Client,
    played: PlayedEngine,
    *,
    logprobs: tuple[float, float] | None = None,
    **report: Any,
) -> Job:
    """A job of maren's that went through the gate. `logprobs`: what the trainer found, if not what the engine says."""
    job, trainer = running(company, web, end_user=company.maren)
    body = trainer.adapter(**({} if logprobs is None else {"logprobs": logprobs}))
    body["report"] |= report
    assert trainer.complete(body).json() == {"state": "gating"}
    gate(job=job.id, asked=played.engine)
    job.refresh_from_db()
    company.maren.refresh_from_db()
    return job


def sweep() -> None:
    ObjectRemoval.objects.update(not_before=F("not_before") - timedelta(hours=3))
    objects_sweep()


def warned(job: Job) -> list[str]:
    return [each["code"] for each in job.report["gate"]["warnings"]]


def test_all_figures_are_on_the_job(company: Company, web: httpx.Client, played_engine: PlayedEngine) -> None:
    against = {"quoted": 3, "prompt_tokens": 120, **comparison(-1, -0.5)}
    job = gated(company, web, played_engine, against_base=comparison(-2, -1), against_memory=against)
    assert job.state == State.SUCCEEDED
    assert company.maren.active_adapter == job.adapter
    shown = job_shape(job, scope=Scope(tenant=company.tenant))["report"]
    assert shown["against_base"]["low"] == -2
    assert shown["against_memory"]["prompt_tokens"] == 120
    assert (shown["gate"]["warnings"], shown["gate"]["activated"]) == ([], True)
    assert shown["gate"]["engine"] == {
        "prompts": 2,
        "tokens": 24,
        "base_tokens": 24,
        "effect": pytest.approx(0.4),
        "difference": 0,
        "base_difference": 0,
        "allowed": 1e-3,
    }


@pytest.mark.slow
@pytest.mark.parametrize("why", ["adapter_disagrees", "adapter_without_effect"])
def test_what_does_not_pass_is_kept_and_answers_nobody(
    company: Company,
    web: httpx.Client,
    played_engine: PlayedEngine,
    engine: FaultyEngine,  # noqa: F811
    why: str,
) -> None:
    """Tampered with: the trainer's probe is of other weights than those that it uploaded."""
    played_engine.same = why == "adapter_without_effect"
    job = gated(company, web, played_engine, logprobs=(-0.1, -0.9))
    assert (job.state, job.error_code) == (State.FAILED, why)
    assert job.report["gate"]["engine"]["difference"] == pytest.approx(0.8 if played_engine.same else 0.4)
    assert company.maren.active_adapter is None
    assert not UsageRow.objects.exists()
    adapter = Adapter.objects.get(job=job)
    shown = job_shape(job, scope=Scope(tenant=company.tenant))
    assert (shown["status"], shown["fine_tuned_model"]) == ("failed", None)
    assert adapter_shape(adapter)["attune"]["passed"] is False
    with pytest.raises(BadRequest, match="did not pass") as refused:
        adapter_activate(adapter=adapter)
    assert refused.value.code == "adapter_not_passed"
    for key in (company.key, company.maren_key):
        asked = {"model": adapter.public_name, "messages": [{"role": "user", "content": "hi"}]}
        headers = {"authorization": f"Bearer {key}"}
        chat = web.post("/v1/chat/completions", json=asked, headers=headers)
        assert (chat.status_code, chat.json()["error"]["code"]) == (400, "adapter_not_passed")
        assert chat.json()["error"]["param"] == "model"
        listed = web.get("/v1/models", headers=headers).json()["data"]
        assert [model["id"] for model in listed] == ["tiny"]
        shown = web.get(f"/v1/models/{adapter.public_name}", headers=headers).json()
        assert shown["attune"]["passed"] is False, "it can still be looked at"
    assert engine.bodies == [], "the engine was never asked to chat"
    assert not UsageRow.objects.exists()
    sweep()
    kept = [manifest_key(company.tenant.storage_id, adapter.name)]
    kept += [object_key(company.tenant.storage_id, digest) for digest in adapter.object_digests]
    assert all(store().size(key) for key in kept)
    adapter_delete(adapter=adapter)
    sweep()
    assert not any(store().size(key) for key in kept)


def test_worse_than_the_base_is_not_made_active(
    company: Company, web: httpx.Client, played_engine: PlayedEngine
) -> None:
    memory = {"quoted": 3, "prompt_tokens": 120, **comparison(-1, -0.5)}
    job = gated(company, web, played_engine, against_base=comparison(0.2, 0.6), against_memory=memory)
    assert job.state == State.SUCCEEDED
    assert company.maren.active_adapter is None
    assert (warned(job), job.report["gate"]["activated"]) == (["worse_than_base"], False)
    last, warning = job.events.order_by("-id")[:2]
    assert last.message == "Done: version 1."
    assert (warning.level, "worse than the base model" in warning.message) == ("warn", True)
    adapter_activate(adapter=job.adapter)
    company.maren.refresh_from_db()
    assert company.maren.active_adapter == job.adapter, "who wants it all the same can have it"


def test_what_may_disagree_is_not_made_active(
    company: Company, web: httpx.Client, played_engine: PlayedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too little was said as the base model to know what rounding does here."""
    monkeypatch.setattr("webapp.jobs.verdict.FEWEST_COMPARED", 25)
    job = gated(company, web, played_engine, logprobs=(-0.1, -0.9))
    assert job.state == State.SUCCEEDED
    assert company.maren.active_adapter is None
    assert (warned(job)[0], job.report["gate"]["activated"]) == ("too_little_compared", False)
    assert "up to 0.4 apart" in job.report["gate"]["warnings"][0]["message"]


def test_what_cannot_be_judged_is_made_active_with_a_warning(
    company: Company, web: httpx.Client, played_engine: PlayedEngine
) -> None:
    job = gated(company, web, played_engine)
    assert company.maren.active_adapter == job.adapter
    assert warned(job) == ["too_little_held_out"]


@pytest.mark.slow
def test_the_words_are_gone_with_the_job(
    company: Company, web: httpx.Client, played_engine: PlayedEngine
) -> None:
    job, trainer = running(company, web)
    trainer.complete(trainer.adapter())
    key = object_key(company.tenant.storage_id, Job.objects.get(id=job.id).probe["sha256"])
    sweep()
    assert store().size(key)
    gate(job=job.id, asked=played_engine.engine)
    sweep()
    assert store().size(key) is None
    assert Job.objects.get(id=job.id).probe is None


def test_an_engine_with_another_base_says_nothing_of_the_adapter(
    company: Company, web: httpx.Client, played_engine: PlayedEngine
) -> None:
    played_engine.said[0] = -2.5
    job = gated(company, web, played_engine)
    assert job.state == State.GATING
    assert "does not answer as tiny does at the trainer" in job.events.last().message


def test_an_adapter_is_tried_once_a_round(
    company: Company, web: httpx.Client, played_engine: PlayedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it is due again at once, as it would be after the trials of many others: the round has an end."""
    monkeypatch.setattr("webapp.jobs.gate._PAUSE", timedelta())
    job, trainer = running(company, web)
    trainer.complete(trainer.adapter())
    played_engine.busy = 1
    assert gate_all(asked=played_engine.engine)
    assert Job.objects.get(id=job.id).state == State.GATING
    assert gate_all(asked=played_engine.engine)
    assert Job.objects.get(id=job.id).state == State.SUCCEEDED


@pytest.mark.parametrize("logprob", [float("nan"), None, "x"])
def test_an_answer_that_cannot_be_compared_is_a_failed_trial(
    company: Company, web: httpx.Client, played_engine: PlayedEngine, logprob: Any
) -> None:
    played_engine.said[1] = logprob
    job = gated(company, web, played_engine)
    assert (job.state, job.failed_trials) == (State.GATING, 1)
    assert "cannot be compared" in job.events.last().message


@pytest.mark.slow
@pytest.mark.parametrize("bad", [b"{}", b"[", b'{"questions": [{"prompt": ["my secret"]}]}', None])
def test_a_probe_that_cannot_be_read(company: Company, web: httpx.Client, bad: bytes | None) -> None:
    job, trainer = running(company, web)
    body = trainer.adapter()
    body["probe"] = {"sha256": "0" * 64, "size": 1} if bad is None else trainer.put(bad)
    assert trainer.complete(body).json() == {"state": "failed"}
    job.refresh_from_db()
    assert job.error_code == "probe_invalid"
    assert "secret" not in job.error_message
