"""The table of the job protocol, played over HTTP by a trainer, with time moved in the database."""

import threading
import uuid
from datetime import timedelta

import httpx
import numpy as np
import pytest
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from adapters_store.manifest import TENSORS_FILE, BaseRef, manifest_load
from adapters_store.s3 import manifest_key, object_key
from tests.webapp.company import Company
from tests.webapp.played_engine import PlayedEngine
from tests.webapp.played_trainer import PlayedTrainer
from training_jobs.client import JobCalls, WebApp, WebAway
from training_jobs.lease import Lease
from training_jobs.messages import Heartbeat, HeartbeatReply
from webapp.adapters.models import Adapter
from webapp.api.shapes import checkpoint_shape
from webapp.datasets.storage import store
from webapp.engine import Engine
from webapp.jobs.create import Wishes
from webapp.jobs.gate import gate
from webapp.jobs.lifecycle import (
    dispatch_lapse,
    job_cancel,
    job_dispatch,
    job_pause,
    job_resume,
    lease_lapse,
)
from webapp.jobs.models import Job, JobEvent, Outbox
from webapp.jobs.prepare import job_prepare
from webapp.jobs.trial import EngineAway
from webapp.jobs.turns import waiting
from webapp.usage.models import UsageRow

pytestmark = pytest.mark.django_db(transaction=True)


def queued(company: Company, **fields: object) -> Job:
    job = company.job(**fields)
    job_prepare(job=job.id)
    return job


def running(company: Company, web: httpx.Client, **fields: object) -> tuple[Job, PlayedTrainer]:
    job = queued(company, **fields)
    trainer = PlayedTrainer(web)
    claim(job, trainer)
    return job, trainer


def claim(job: Job, trainer: PlayedTrainer) -> str:
    token = job_dispatch(job=job.id, dispatch=uuid.uuid4())
    assert token is not None
    assert trainer.claim(job.id.hex, token).status_code == 200
    return token


def state(job: Job) -> str:
    return Job.objects.get(id=job.id).state


def lapse(job: Job) -> None:
    Job.objects.filter(id=job.id).update(lease_until=F("lease_until") - timedelta(seconds=31))
    lease_lapse(heard=True)


def is_fenced(answer: httpx.Response) -> bool:
    return answer.status_code == 410 and answer.json()["error"]["code"] == "fenced"


def test_from_upload_to_an_active_adapter(
    company: Company, web: httpx.Client, played_engine: PlayedEngine
) -> None:
    job, trainer = running(company, web, end_user=company.maren)
    assert not Outbox.objects.exists()
    assert httpx.get(trainer.spec.conversations.url, verify=False).text.count("\n") == 12
    news = [{"message": "step 1", "metrics": {"step": 1, "train_loss": 2.5}}]
    assert trainer.heartbeat(events=news).json() == {"state": "running", "stop": False}
    body = trainer.adapter()
    body["report"] |= {"held_out_loss_after": 1.5, "best_step": 7, "stopped_at_step": 10}
    assert trainer.complete(body).json() == {"state": "gating"}
    gate(job=job.id, asked=played_engine.engine)
    job.refresh_from_db()
    adapter = Adapter.objects.get(job=job)
    assert job.state == "succeeded"
    assert job.report["stopped_at_step"] == 10
    checkpoint = checkpoint_shape(job, adapter)
    assert (checkpoint["step_number"], checkpoint["metrics"]["full_valid_loss"]) == (7, 1.5)
    company.maren.refresh_from_db()
    assert company.maren.active_adapter == adapter
    assert adapter.public_name == f"ft:tiny:maren:{job.id.hex[:8]}"
    assert played_engine.asked[:2] == ["tiny", f"{company.tenant.id.hex}/{adapter.name}"]
    assert played_engine.bodies[0]["prompt"] == [[1, 2], [3, 4, 7]]
    usage = UsageRow.objects.get()
    assert (usage.kind, usage.input_tokens, usage.end_user) == ("training", 321, company.maren)
    assert store().size(manifest_key(company.tenant.id.hex, adapter.name))
    results = store().get(object_key(company.tenant.id.hex, job.result_file.sha256), 1000)
    assert results == b"step,train_loss\n1.0,2.5\n"


def test_a_step_that_two_attempts_did_is_told_once(
    company: Company, web: httpx.Client, played_engine: PlayedEngine
) -> None:
    def told(*steps: int) -> list[dict[str, object]]:
        return [{"message": "s", "metrics": {"step": step, "train_loss": 1 / step}} for step in steps]

    job, trainer = running(company, web)
    valid = {"message": "v", "metrics": {"step": 2, "valid_loss": 3.0}}
    trainer.heartbeat(events=[*told(1, 2), valid, *told(4)])
    lapse(job)
    claim(job, trainer)
    trainer.heartbeat(
        events=[*told(2), valid, *told(4, 5), {"message": "none", "metrics": {"train_loss": 9}}]
    )
    trainer.complete(trainer.adapter())
    gate(job=job.id, asked=played_engine.engine)
    job.refresh_from_db()
    results = store().get(object_key(company.tenant.id.hex, job.result_file.sha256), 1000)
    assert results == b"step,train_loss,valid_loss\n1.0,1.0,\n2.0,0.5,3.0\n4.0,0.25,\n5.0,0.2,\n"


class LossyCalls:
    """A trainer's calls of which the web application hears everything, and the trainer not every answer."""

    def __init__(self, calls: JobCalls) -> None:
        self.epoch, self.lost = calls.epoch, False
        self._calls = calls

    def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        reply = self._calls.heartbeat(beat)
        if self.lost:
            raise WebAway("the answer was lost")
        return reply


def test_events_whose_answer_was_lost_are_told_again_and_count_once(
    company: Company, web: httpx.Client, live_url: str
) -> None:
    """The trainer's own lease, over HTTP; each attempt numbers its events anew."""
    job, trainer = running(company, web)
    of_trainer = job.events.order_by("id").filter(message__startswith="told")
    for attempt in (1, 2):
        calls = LossyCalls(WebApp(live_url).of_job(trainer.spec))
        lease = Lease(calls, None, threading.Event(), leave_seconds=0)
        for number, calls.lost in enumerate((True, True, False, True, False)):
            lease.event(f"told {attempt}.{number}")
            lease.tell_the_rest()
        lapse(job)
        claim(job, trainer)
    assert [event.message for event in of_trainer] == [f"told {a}.{n}" for a in (1, 2) for n in range(5)]


@pytest.mark.slow
def test_versions_count_up_and_the_newest_is_active(
    company: Company, web: httpx.Client, played_engine: PlayedEngine
) -> None:
    for seed in range(2):
        job, trainer = running(company, web, end_user=company.maren)
        trainer.complete(trainer.adapter(seed=seed))
        gate(job=job.id, asked=played_engine.engine)
    company.maren.refresh_from_db()
    assert company.maren.active_adapter.version == 2


def test_claim_again_gets_the_same_epoch(company: Company, web: httpx.Client) -> None:
    job, trainer = running(company, web)
    job = queued(company)
    token = job_dispatch(job=job.id, dispatch=uuid.uuid4())
    first = trainer.claim(job.id.hex, token).json()
    again = trainer.claim(job.id.hex, token).json()
    assert (first["epoch"], first["token"]) == (again["epoch"], again["token"]) == (1, again["token"])
    assert is_fenced(PlayedTrainer(web).claim(job.id.hex, token)), "another worker with the same message"


@pytest.mark.slow
def test_a_lapsed_lease_fences_the_worker(
    company: Company, web: httpx.Client, played_engine: PlayedEngine
) -> None:
    """SIGSTOP past the lease, then SIGCONT: the woken worker publishes nothing, the second one finishes once."""
    job, sleeper = running(company, web)
    checkpoint = sleeper.put(b"optimiser state") | {"step": 5}
    sleeper.heartbeat(step=5, checkpoint=checkpoint)
    body = sleeper.adapter(seed=1)
    lapse(job)
    assert state(job) == "queued"
    for answer in (sleeper.heartbeat(), sleeper.complete(body), sleeper.fail(), sleeper.release()):
        assert is_fenced(answer)
    second = PlayedTrainer(web)
    claim(job, second)
    assert is_fenced(sleeper.complete(body)), "while another attempt runs, too"
    assert second.spec.epoch == 2
    assert second.spec.checkpoint.step == 5
    assert httpx.get(second.spec.checkpoint.url, verify=False).content == b"optimiser state"
    second.complete(second.adapter(seed=2))
    gate(job=job.id, asked=played_engine.engine)
    assert is_fenced(sleeper.complete(body)), "and after the end"
    assert Adapter.objects.filter(job=job).count() == UsageRow.objects.count() == 1


def test_the_third_failed_attempt_quarantines(company: Company, web: httpx.Client) -> None:
    job = queued(company)
    for attempt in range(3):
        assert state(job) == "queued", attempt
        claim(job, PlayedTrainer(web))
        lapse(job)
    job.refresh_from_db()
    assert (job.state, job.error_code) == ("failed", "quarantined")
    assert job.epoch == 3
    assert "tried 3 times" in job.error_message
    assert "fell silent" in job.error_message
    assert "memory" not in job.error_message, "nobody knows why"


def fault(job: Job, web: httpx.Client, **said: object) -> Job:
    """An attempt that ends so, and the job afterwards."""
    trainer = PlayedTrainer(web)
    claim(job, trainer)
    assert trainer.fail(retry=True, **said).status_code == 200
    return Job.objects.get(id=job.id)


@pytest.mark.parametrize(
    ("code", "ends"), [("needs_more_memory", "needs_more_memory"), ("trainer_error", "quarantined")]
)
def test_a_job_ends_with_the_fault_of_its_last_attempt(
    company: Company, web: httpx.Client, code: str, ends: str
) -> None:
    job = queued(company)
    for _ in range(2):
        assert fault(job, web, code=code, message="So it was.").state == "queued"
    job = fault(job, web, code=code, message="So it was.")
    assert (job.state, job.error_code) == ("failed", ends)
    assert "So it was." in job.error_message
    assert ("It was tried 3 times." in job.error_message) == (ends == code)


def test_a_fault_that_may_pass_gets_time_to(company: Company, web: httpx.Client) -> None:
    """The queue leaves the job alone, longer the second time."""
    job, waits = queued(company), []
    for _ in range(2):
        job = fault(job, web, code="needs_more_memory")
        assert not waiting(["tiny"]).exists()
        waits.append((job.wait_until - timezone.now()).total_seconds())
        Job.objects.update(wait_until=Now() - timedelta(seconds=1))
        assert waiting(["tiny"]).exists()
    assert waits == [pytest.approx(30, abs=5), pytest.approx(120, abs=5)]


def test_storage_that_is_away_costs_no_attempt(company: Company, web: httpx.Client) -> None:
    job, waits = queued(company), []
    for _ in range(12):
        job = fault(job, web, code="storage_unavailable", message="Away.", counts=False)
        assert (job.state, job.failed_attempts) == ("queued", 0)
        waits.append(round((job.wait_until - timezone.now()).total_seconds(), -1))
    assert waits[3:] == [20, 40, 80, 160, 320, 600, 600, 600, 600]
    assert job.events.last().message == "Away. Trying again from the last checkpoint, in 600 seconds."


def test_storage_that_is_away_for_a_day_ends_a_job_with_its_own_code(
    company: Company, web: httpx.Client
) -> None:
    job = queued(company)
    Job.objects.update(away=timedelta(hours=23, minutes=59))
    assert fault(job, web, code="storage_unavailable", message="Away.", counts=False).state == "queued"
    job = fault(job, web, code="storage_unavailable", message="Away.", counts=False)
    assert (job.state, job.error_code) == ("failed", "storage_unavailable")
    assert job.error_message == "Away. It was so for a day: start the job again."


def test_a_checkpoint_in_storage_ends_its_absence(company: Company, web: httpx.Client) -> None:
    job, trainer = running(company, web)
    Job.objects.update(away=timedelta(hours=23))
    trainer.heartbeat(checkpoint=trainer.put(b"state") | {"step": 3})
    assert Job.objects.get(id=job.id).away == timedelta()


def test_resumed_is_not_set_aside(company: Company, web: httpx.Client) -> None:
    job = fault(queued(company), web, code="storage_unavailable", counts=False)
    job_pause(job=job)
    assert job_resume(job=job).state == "queued"
    assert waiting(["tiny"]).exists()


def test_a_restarting_worker_is_nobodys_failure(company: Company, web: httpx.Client) -> None:
    job = queued(company)
    for _ in range(5):
        trainer = PlayedTrainer(web)
        claim(job, trainer)
        assert trainer.release().json() == {"state": "queued"}
    assert Job.objects.get(id=job.id).failed_attempts == 0


def test_failing(company: Company, web: httpx.Client) -> None:
    job, trainer = running(company, web)
    assert trainer.fail(retry=True).json() == {"state": "queued"}
    claim(job, trainer)
    assert trainer.fail(code="out_of_memory", message="Rows are too long.").json() == {"state": "failed"}
    assert trainer.fail().json() == {"state": "failed"}, "idempotent"
    job.refresh_from_db()
    assert (job.error_code, job.error_message) == ("out_of_memory", "Rows are too long.")


def test_an_unclaimed_message_is_sent_again(company: Company, web: httpx.Client) -> None:
    job = queued(company)
    stale = job_dispatch(job=job.id, dispatch=uuid.uuid4())
    assert dispatch_lapse() == 0
    Job.objects.filter(id=job.id).update(dispatched_at=Now() - timedelta(seconds=61))
    assert dispatch_lapse() == 1
    assert state(job) == "queued"
    trainer = PlayedTrainer(web)
    assert is_fenced(trainer.claim(job.id.hex, stale)), "before it is sent again"
    fresh = job_dispatch(job=job.id, dispatch=uuid.uuid4())
    assert is_fenced(trainer.claim(job.id.hex, stale)), "the stale message arrives late"
    assert trainer.claim(job.id.hex, fresh).status_code == 200


def test_cancel_is_terminal_at_once(company: Company, web: httpx.Client) -> None:
    job, trainer = running(company, web)
    body = trainer.adapter()
    job_cancel(job=job)
    assert trainer.heartbeat().json() == {"state": "cancelled", "stop": True}
    assert is_fenced(trainer.complete(body))
    assert not Adapter.objects.exists()
    assert state(job) == "cancelled"


def test_cancel_at_the_gate(company: Company, web: httpx.Client, played_engine: PlayedEngine) -> None:
    job, trainer = running(company, web)
    trainer.complete(trainer.adapter())
    job_cancel(job=job)
    gate(job=job.id, asked=played_engine.engine)
    assert state(job) == "cancelled"
    assert not Adapter.objects.exists()


def test_pause_and_resume(company: Company, web: httpx.Client) -> None:
    job, trainer = running(company, web)
    job_pause(job=job)
    assert lease_lapse(heard=True) == 0, "a paused job has no lease"
    assert trainer.heartbeat().json() == {"state": "paused", "stop": True}
    checkpoint = trainer.put(b"state") | {"step": 3}
    assert trainer.release(checkpoint=checkpoint).json() == {"state": "paused"}
    job_resume(job=job)
    assert is_fenced(trainer.heartbeat())
    second = PlayedTrainer(web)
    claim(job, second)
    assert (second.spec.epoch, second.spec.checkpoint.step) == (2, 3)


def test_complete_is_idempotent(company: Company, web: httpx.Client, played_engine: PlayedEngine) -> None:
    job, trainer = running(company, web)
    body = trainer.adapter()
    assert trainer.complete(body).json() == trainer.complete(body).json() == {"state": "gating"}
    gate(job=job.id, asked=played_engine.engine)
    assert trainer.complete(body).json() == {"state": "succeeded"}
    assert JobEvent.objects.filter(job=job, message__startswith="Training finished").count() == 1


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"base": BaseRef(digest="c" * 64, name="tiny")}, "adapter_wrong_base"),
        ({"position": "all"}, "adapter_corrupt"),
        ({"rank": 16}, "adapter_corrupt"),
    ],
)
def test_an_unsound_adapter_fails_the_job(
    company: Company, web: httpx.Client, changes: dict[str, object], code: str
) -> None:
    job, trainer = running(company, web)
    assert trainer.complete(trainer.adapter(**changes)).json() == {"state": "failed"}
    assert Job.objects.get(id=job.id).error_code == code


@pytest.mark.parametrize(("trained", "ends"), [("q_proj", "gating"), ("k_proj", "failed")])
def test_a_lora_adapts_the_projections_that_were_asked_for(
    company: Company, web: httpx.Client, trained: str, ends: str
) -> None:
    job, trainer = running(company, web, wishes=Wishes(method="lora", target_modules=["q_proj"], rank=2))
    at = f"base_model.model.model.layers.0.self_attn.{trained}.lora_"
    tensors = {f"{at}A.weight": np.ones((2, 8)), f"{at}B.weight": np.ones((8, 2))}
    body = trainer.adapter(method="lora", scale=16.0, tensors=tensors)
    assert trainer.complete(body).json() == {"state": ends}
    assert Job.objects.get(id=job.id).error_code == ("adapter_corrupt" if ends == "failed" else "")


@pytest.mark.parametrize(("asked", "ends"), [([0], "gating"), ([1], "failed"), ([0, 1], "failed")])
def test_an_adapter_acts_in_the_layers_that_were_asked_for(
    company: Company, web: httpx.Client, asked: list[int], ends: str
) -> None:
    job, trainer = running(company, web, wishes=Wishes(method="lora", layers=asked, rank=2))
    at = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
    tensors = {f"{at}A.weight": np.ones((2, 8)), f"{at}B.weight": np.ones((8, 2))}
    body = trainer.adapter(method="lora", scale=16.0, tensors=tensors)
    assert trainer.complete(body).json() == {"state": ends}
    assert Job.objects.get(id=job.id).error_code == ("adapter_corrupt" if ends == "failed" else "")


def test_missing_and_flipped_bytes_fail_the_job(company: Company, web: httpx.Client) -> None:
    job, trainer = running(company, web)
    body = trainer.adapter()
    manifest = manifest_load(
        store().get(object_key(company.tenant.id.hex, body["manifest"]["sha256"]), 10**6)
    )
    key = object_key(company.tenant.id.hex, manifest.files[TENSORS_FILE].sha256)
    data = bytearray(store().get(key, 10**6))
    data[-1] ^= 1
    store().put(key, bytes(data))
    assert trainer.complete(body).json() == {"state": "failed"}
    assert Job.objects.get(id=job.id).error_code == "adapter_corrupt"


def test_the_engine_away_waits(company: Company, web: httpx.Client, played_engine: PlayedEngine) -> None:
    job, trainer = running(company, web)
    trainer.complete(trainer.adapter())
    with pytest.raises(EngineAway):
        gate(job=job.id, asked=Engine("http://127.0.0.1:9", "k"))
    played_engine.refuse = (503, "adapter_memory_full")
    gate(job=job.id, asked=played_engine.engine)
    assert state(job) == "gating"
    played_engine.refuse = None
    gate(job=job.id, asked=played_engine.engine)
    assert state(job) == "succeeded"


def test_the_engine_refuses(company: Company, web: httpx.Client, played_engine: PlayedEngine) -> None:
    job, trainer = running(company, web)
    trainer.complete(trainer.adapter())
    played_engine.refuse = (400, "adapter_rank_too_high")
    gate(job=job.id, asked=played_engine.engine)
    job.refresh_from_db()
    assert (job.state, job.error_code) == ("failed", "adapter_rank_too_high")
    assert not Adapter.objects.exists()


def test_unknown_jobs_and_tokens(company: Company, web: httpx.Client) -> None:
    job, trainer = running(company, web)
    assert web.post("/internal/jobs/" + "0" * 32 + "/claim", json={"worker": "0" * 32}).status_code == 401
    assert PlayedTrainer(web).claim("0" * 32, "x").status_code == 404
    assert is_fenced(PlayedTrainer(web).claim(job.id.hex, "x"))
    wrong = {"Authorization": "Bearer wrong"}
    hello = {"bases": [], "device": "cpu", "busy": False}
    assert web.post("/internal/workers/" + "0" * 32, json=hello, headers=wrong).status_code == 401
    answer = trainer.heartbeat(surprise=1)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unknown_parameter")


def test_training_and_validation_are_one_object(company: Company, web: httpx.Client) -> None:
    from tests.webapp.company import talks

    files = {"training_file": company.file(talks(5)), "validation_file": company.file(talks(7)[5:])}
    _, trainer = running(company, web, **files)
    rows = httpx.get(trainer.spec.conversations.url, verify=False).text.splitlines()
    assert [row.count('"validation"') for row in rows] == [0] * 5 + [1] * 2
