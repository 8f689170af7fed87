"""A job from claim to end, over HTTP: every ending is told, once, and nothing is told after being fenced."""

import json
import math
import threading

import pytest
import torch

from tests.training_jobs.tiny import tiny_folder
from tests.training_jobs.web_double import DISPATCH, JOB, WORKER, WebDouble
from training_jobs import lease, oom_kills
from training_jobs import messages as m
from training_jobs.base_models import MAX_TOKENS, WarmBase, base_digest_of
from training_jobs.client import WebApp
from training_jobs.run import JobRunner
from training_jobs.training import Pace
from training_jobs.transfer import Storage

pytestmark = pytest.mark.slow  # it trains

RECIPE = m.Recipe(method="direft", position="prefill", rank=4)
HYPERPARAMETERS = m.Hyperparameters(n_epochs=4, batch_size=4, learning_rate=1e-2, seed=3)


def rows(count: int = 12) -> list[str]:
    def row(index: int) -> str:
        messages = [{"role": "user", "content": f"secret {index}"}, {"role": "assistant", "content": "aye!"}]
        split = "validation" if index % 6 == 5 else "train"
        return json.dumps({"id": str(index), "messages": messages, "split": split})

    return [row(index) for index in range(count)]


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    tiny_folder(folder / "tiny")
    return WarmBase(folder), m.Base(name="tiny", digest=base_digest_of(folder / "tiny"))


def test_no_row_is_longer_than_the_engine_serves(tmp_path):
    tiny_folder(tmp_path / "tiny")
    ref = m.Base(name="tiny", digest=base_digest_of(tmp_path / "tiny"))
    assert WarmBase(tmp_path, max_tokens=17).get(ref).max_tokens == 17
    assert WarmBase(tmp_path).get(ref).max_tokens <= MAX_TOKENS


@pytest.fixture
def web(bases, monkeypatch):
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.05)
    double = WebDouble()
    double.offer(base=bases[1], recipe=RECIPE, hyperparameters=HYPERPARAMETERS, rows=rows())
    yield double
    double.close()


@pytest.fixture
def run(web, bases, tmp_path):
    def run(*, leaving=None, dispatch_token=DISPATCH):
        client = WebApp(web.url, wait=lambda seconds: None)
        runner = JobRunner(
            worker=WORKER,
            web=client,
            bases=bases[0],
            work_dir=tmp_path,
            leaving=leaving or threading.Event(),
            leave_seconds=60,
            pace=Pace(steps=2, seconds=0),
            oom_kills=0,
        )
        ended = runner.run({JOB: dispatch_token})
        client.close()
        assert list(tmp_path.iterdir()) == []
        return ended[JOB]

    return run


def test_a_job_completes(web, run, bases, tmp_path_factory):
    assert run() == "completed"
    manifest = web.adapter(tmp_path_factory.mktemp("read") / "a")
    assert (manifest.base.digest, manifest.method, manifest.position) == (
        bases[1].digest,
        "direft",
        "prefill",
    )
    (complete,) = web.of(m.Complete)
    assert complete.report.steps == 12
    assert complete.report.held_out_loss_after < complete.report.held_out_loss_before - 0.3
    steps = [event.metrics["step"] for event in web.events if event.metrics and "train_loss" in event.metrics]
    assert steps == list(range(1, 13))
    assert any(event.metrics and "valid_loss" in event.metrics for event in web.events)
    assert web.of(m.Heartbeat)[-1].step == 12
    told = json.dumps([message.model_dump(mode="json") for message in web.said])
    assert "secret" not in told


def test_what_the_gate_needs_is_uploaded(web, run):
    assert run() == "completed"
    (complete,) = web.of(m.Complete)
    probe = m.Probe.model_validate_json(web.objects[complete.probe.sha256])
    assert len(probe.questions) == 2, "one for each held-out prompt"
    assert probe.questions[0].adapted != probe.questions[0].base
    base, memory = complete.report.against_base, complete.report.against_memory
    assert (base.loss, base.adapter_loss) == (
        complete.report.held_out_loss_before,
        complete.report.held_out_loss_after,
    )
    assert (base.conversations, base.tokens) == (2, complete.report.held_out_tokens)
    assert base.high < 0
    assert (memory.quoted, memory.adapter_loss) == (4, base.adapter_loss)


def test_a_job_on_preference_pairs_completes(web, run, bases):
    web.offer(
        base=bases[1],
        recipe=RECIPE,
        hyperparameters=HYPERPARAMETERS.model_copy(update={"beta": 0.5}),
        rows=[json.dumps({**json.loads(line), "rejected": "nay, never"}) for line in rows(24)],
    )
    assert run() == "completed"
    (complete,) = web.of(m.Complete)
    report = complete.report
    assert report.held_out_loss_before == pytest.approx(math.log(2), abs=1e-5)
    assert report.held_out_loss_after < 0.5
    assert (report.against_base.pairs, report.against_base.adapter_accuracy) == (4, 1.0)
    assert (report.against_memory.pairs, report.against_memory.quoted) == (4, 4)
    probe = m.Probe.model_validate_json(web.objects[complete.probe.sha256])
    assert len(probe.questions) == 3
    assert any("Training on 20 preference pairs" in event.message for event in web.events)
    told = json.dumps([message.model_dump(mode="json") for message in web.said])
    assert "secret" not in told
    assert "never" not in told


def test_a_job_that_only_gets_worse_ends_early_and_says_which_step_it_keeps(web, run, bases):
    lines = [json.loads(line) for line in rows()]
    for line in lines:
        if line["split"] == "validation":
            line["messages"][1]["content"] = "oh"
    web.offer(
        base=bases[1],
        recipe=RECIPE,
        hyperparameters=HYPERPARAMETERS.model_copy(update={"n_epochs": 30}),
        rows=[json.dumps(line) for line in lines],
    )
    assert run() == "completed"
    report = web.of(m.Complete)[0].report
    losses = {
        e.metrics["step"]: e.metrics["valid_loss"] for e in web.events if "valid_loss" in (e.metrics or {})
    }
    assert (
        report.best_step
        == min(losses, key=losses.get)
        < report.steps
        == report.stopped_at_step
        == max(losses)
    )
    assert report.held_out_loss_after == min(losses.values())
    (said,) = [event.message for event in web.events if "ends early" in event.message]
    assert f"after step {report.steps} of 90" in said
    assert f"is the one of step {report.best_step}." in said


def test_too_little_memory_for_half_a_batch_fails_the_job_for_good(web, run, monkeypatch):
    def exhausted(*args):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr("training_jobs.sft.target_nll", exhausted)
    assert run() == "failed"
    (fail,) = web.of(m.Fail)
    assert (fail.code, fail.retry) == ("out_of_memory", False)
    assert "batch_size below 4" in fail.message
    (warning,) = [event.message for event in web.events if event.level == "warn"]
    assert "half a batch at a time" in warning


@pytest.mark.parametrize(("failed_attempts", "kills", "halved"), [(0, 1, False), (1, 0, False), (1, 1, True)])
def test_after_the_kernel_ended_an_attempt_half_a_batch_is_computed_at_a_time(
    web, run, monkeypatch, failed_attempts, kills, halved
):
    monkeypatch.setattr("training_jobs.run.oom_kills", lambda: kills)
    web.spec["failed_attempts"] = failed_attempts
    assert run() == "completed"
    told = [event.message for event in web.events if "half a batch at a time" in event.message]
    assert len(told) == halved
    assert not any("after step" in message for message in told), (
        "nobody knows after which, nor whether it was this job"
    )
    assert web.of(m.Complete)[0].report.steps == 12


@pytest.mark.parametrize(
    ("events", "vmstat", "count"),
    [
        ("oom 3\noom_kill 2\n", "oom_kill 7\n", 2),
        (None, "nr_free 1\noom_kill 7\n", 7),
        ("low 0\n", "nr_free 1\n", 0),
        (None, None, 0),
    ],
)
def test_the_container_is_asked_first_how_often_memory_ran_out(tmp_path, monkeypatch, events, vmstat, count):
    paths = []
    for name, text in (("memory.events", events), ("vmstat", vmstat)):
        paths.append(tmp_path / name)
        if text is not None:
            paths[-1].write_text(text)
    monkeypatch.setattr(oom_kills, "_COUNTS", paths)
    assert oom_kills.oom_kills() == count


@pytest.mark.parametrize(("method", "position"), [("lora", "prefill"), ("loreft", "all")])
def test_the_other_methods_complete(web, run, bases, tmp_path_factory, method, position):
    recipe = m.Recipe(method=method, position=position, rank=2)
    web.offer(base=bases[1], recipe=recipe, hyperparameters=HYPERPARAMETERS, rows=rows())
    assert run() == "completed"
    manifest = web.adapter(tmp_path_factory.mktemp("read") / "a")
    assert (manifest.method, manifest.position, manifest.rank) == (method, position, 2)


def test_a_released_job_goes_on_from_its_checkpoint_to_the_same_adapter(web, run, bases, tmp_path_factory):
    run()
    whole = web.adapter(tmp_path_factory.mktemp("read") / "whole")
    web.said.clear()
    web.offer(base=bases[1], recipe=RECIPE, hyperparameters=HYPERPARAMETERS, rows=rows())
    web.checkpoint = None

    class AfterStepFive:
        def is_set(self):
            return any(beat.step >= 5 for beat in web.of(m.Heartbeat)) or slow()

    def slow():
        threading.Event().wait(0.05)
        return False

    assert run(leaving=AfterStepFive()) == "released"
    (release,) = web.of(m.Release)
    assert 5 <= release.checkpoint.step < 12
    assert release.checkpoint.sha256 in web.objects
    assert run() == "completed"
    assert web.of(m.Complete)[0].epoch == web.epoch == 3
    steps_again = [e.metrics["step"] for e in web.events if e.metrics and "train_loss" in e.metrics]
    assert steps_again == list(range(1, 13))
    assert web.adapter(tmp_path_factory.mktemp("read") / "resumed").digest == whole.digest


@pytest.mark.parametrize("state", ["cancelled", "paused"])
def test_a_job_that_was_stopped_leaves(web, run, bases, state):
    patient = HYPERPARAMETERS.model_copy(update={"n_epochs": 50})
    web.offer(base=bases[1], recipe=RECIPE, hyperparameters=patient, rows=rows())

    def on(message):
        if isinstance(message, m.Heartbeat) and message.step >= 3:
            web.state = state

    web.on = on
    if state == "paused":
        assert run() == "paused"
        (release,) = web.of(m.Release)
        assert release.checkpoint.step >= 3
    else:
        assert run() == "fenced"
        assert not web.of(m.Release)
    assert not web.of(m.Complete)
    assert not web.of(m.Fail)


def test_a_fenced_worker_says_nothing_more(web, run):
    def on(message):
        if isinstance(message, m.Heartbeat) and message.step >= 3:
            web.epoch += 1  # another worker took the job

    web.on = on
    assert run() == "fenced"
    assert not web.of(m.Complete) + web.of(m.Fail) + web.of(m.Release)


def test_a_checkpoint_on_its_way_does_not_cost_a_finished_job_its_lease(web, run, monkeypatch):
    """Heartbeats go on while the last checkpoint is uploaded, however long that takes."""
    upload, starved = Storage.upload, []

    def slow(self, path, calls):
        if path.name.startswith("checkpoint"):
            before = len(web.of(m.Heartbeat))
            for _ in range(400):
                if len(web.of(m.Heartbeat)) > before + 3:
                    break
                threading.Event().wait(0.05)
            else:
                starved.append(path.name)
        return upload(self, path, calls)

    monkeypatch.setattr(Storage, "upload", slow)
    assert run() == "completed"
    assert not starved


def test_a_spent_dispatch_token_claims_nothing(web, run):
    assert run(dispatch_token="old") == "fenced"
    assert web.said == []


def test_a_web_application_that_comes_and_goes_is_waited_for(web, run):
    count = iter(range(1000))
    web.on = lambda message: 503 if next(count) % 2 else None
    assert run() == "completed"


@pytest.mark.parametrize(
    ("break_it", "code", "retry"),
    [
        (lambda spec, web: spec.update(base=m.Base(name="tiny", digest="0" * 64)), "base_changed", False),
        (lambda spec, web: spec.update(base=m.Base(name="other", digest="0" * 64)), "base_missing", False),
        (lambda spec, web: spec.update(base=m.Base(name="../tiny", digest="0" * 64)), "base_missing", False),
        (
            lambda spec, web: spec.update(recipe=m.Recipe(method="loreft", position="all", rank=33)),
            "recipe_unfit",
            False,
        ),
        (
            lambda spec, web: web.objects.update({spec["conversations"].sha256: b"x"}),
            "storage_failed",
            True,
        ),
    ],
)
def test_what_cannot_work_fails_with_a_code(web, run, monkeypatch, break_it, code, retry):
    monkeypatch.setattr("training_jobs.transfer.time.sleep", lambda seconds: None)
    break_it(web.spec, web)
    assert run() == "failed"
    (fail,) = web.of(m.Fail)
    assert (fail.code, fail.retry) == (code, retry)
    assert fail.counts


def test_a_file_with_nothing_to_train_fails_and_says_why(web, run, bases):
    line = json.dumps({"id": "7", "messages": [{"role": "user", "content": "alone"}]})
    web.offer(base=bases[1], recipe=RECIPE, hyperparameters=HYPERPARAMETERS, rows=[line])
    assert run() == "failed"
    assert web.of(m.Fail)[0].code == "nothing_to_train"
    (warning,) = [event for event in web.events if event.level == "warn"]
    assert "no assistant message" in warning.message
    assert warning.message.endswith(": 7.")


def test_an_unknown_fault_is_told_without_its_text_and_may_be_tried_again(web, run, monkeypatch, caplog):
    secret = "a user's secret"

    def broken(*args, **kwargs):
        raise RuntimeError(secret)

    monkeypatch.setattr("training_jobs.claimed_job.examples_read", broken)
    assert run() == "failed"
    (fail,) = web.of(m.Fail)
    assert (fail.code, fail.retry) == ("trainer_error", True)
    assert secret not in fail.message
    assert secret not in caplog.text
    assert "in broken" in caplog.text
    assert "builtins.RuntimeError" in caplog.text


def test_the_base_stays_loaded_between_jobs(web, run, bases):
    run()
    loaded = bases[0].get(bases[1])
    web.offer(base=bases[1], recipe=RECIPE, hyperparameters=HYPERPARAMETERS, rows=rows())
    run()
    assert bases[0].get(bases[1]) is loaded
