"""Several jobs in one message: each is told its own end, and is what it would be alone."""

import json
import math
import threading
from collections.abc import Iterator

import pytest

from tests.training_jobs.tiny import tiny_folder
from tests.training_jobs.web_double import DISPATCH, WORKER, WebDouble
from training_jobs import lease, run
from training_jobs import messages as m
from training_jobs.base_models import WarmBase, base_digest_of
from training_jobs.client import WebApp
from training_jobs.run import JobRunner
from training_jobs.sft_together import TrainingsTogether
from training_jobs.training import Pace, Training

pytestmark = pytest.mark.slow  # it trains

RECIPE = m.Recipe(method="direft", position="prefill", rank=4)
IDS = ["a" * 32, "b" * 32, "c" * 32]


def hyperparameters(seed: int) -> m.Hyperparameters:
    return m.Hyperparameters(n_epochs=4, batch_size=4, learning_rate=1e-2, seed=seed)


def rows(what: str) -> list[str]:
    def row(index: int) -> str:
        messages = [{"role": "user", "content": f"{what} {index}"}, {"role": "assistant", "content": what}]
        split = "validation" if index % 6 == 5 else "train"
        return json.dumps({"id": str(index), "messages": messages, "split": split})

    return [row(index) for index in range(12)]


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    tiny_folder(folder / "tiny")
    return WarmBase(folder), m.Base(name="tiny", digest=base_digest_of(folder / "tiny"))


@pytest.fixture
def jobs(bases, monkeypatch) -> Iterator[list[WebDouble]]:
    """Three, of which the first answers for all."""
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.05)
    doubles = [WebDouble(job) for job in IDS]
    doubles[0].others = {double.job: double for double in doubles[1:]}
    for seed, double in enumerate(doubles):
        offer(double, bases, seed)
    yield doubles
    for double in doubles:
        double.close()


def offer(double: WebDouble, bases, seed: int, *, recipe: m.Recipe = RECIPE) -> None:
    double.offer(
        base=bases[1], recipe=recipe, hyperparameters=hyperparameters(seed), rows=rows(f"secret{seed}")
    )


@pytest.fixture
def train(jobs, bases, tmp_path):
    def train(*ids: str) -> dict[str, str]:
        client = WebApp(jobs[0].url, wait=lambda seconds: None)
        runner = JobRunner(
            worker=WORKER,
            web=client,
            bases=bases[0],
            work_dir=tmp_path,
            leaving=threading.Event(),
            leave_seconds=60,
            pace=Pace(steps=2, seconds=0),
            oom_kills=0,
        )
        ended = runner.run(dict.fromkeys(ids, DISPATCH))
        client.close()
        assert list(tmp_path.iterdir()) == []
        return ended

    return train


@pytest.fixture
def batches(monkeypatch) -> list[int]:
    """How many jobs each batch was of."""
    made, train = [], run.adapters_train

    def counted(base, wishes, **more):
        made.append(len(wishes))
        return train(base, wishes, **more)

    monkeypatch.setattr(run, "adapters_train", counted)
    return made


def completion(double: WebDouble) -> m.Complete:
    (complete,) = double.of(m.Complete)
    return complete


def test_each_completes_with_its_own_adapter_and_says_nothing_of_the_others(
    jobs, train, batches, tmp_path_factory
):
    assert train(*IDS) == dict.fromkeys(IDS, "completed")
    assert batches == [3]
    folder = tmp_path_factory.mktemp("read")
    assert len({job.adapter(folder / job.job).digest for job in jobs}) == 3
    for job in jobs:
        report = completion(job).report
        assert report.steps == 12
        assert report.held_out_loss_after < report.held_out_loss_before - 0.3
        assert any("in one batch with other small jobs" in event.message for event in job.events)
        assert sum(event.message.startswith("Training on") for event in job.events) == 1
        probe = m.Probe.model_validate_json(job.objects[completion(job).probe.sha256])
        assert probe.questions[0].adapted != probe.questions[0].base
        told = json.dumps([message.model_dump(mode="json") for message in job.said])
        assert "secret" not in told
        assert not any(other in told for other in IDS if other != job.job)


def test_its_losses_and_its_gain_are_those_of_training_alone(jobs, train, bases):
    train(*IDS)
    together = [completion(job).report for job in jobs]
    for seed, job in enumerate(jobs):
        offer(job, bases, seed)
        job.said.clear()
        assert train(job.job) == {job.job: "completed"}
        alone = completion(job).report
        both = (together[seed], alone)
        for figure in ("train_loss", "held_out_loss_before", "held_out_loss_after"):
            ours, theirs = (getattr(report, figure) for report in both)
            assert ours == pytest.approx(theirs, abs=1e-4)
        assert together[seed].against_base.adapter_loss == pytest.approx(
            alone.against_base.adapter_loss, abs=1e-4
        )


def test_an_end_that_is_refused_costs_the_others_nothing(jobs, train):
    jobs[0].on = lambda message: 422 if isinstance(message, (m.Complete, m.Fail)) else None
    assert train(*IDS) == {IDS[0]: "untold", IDS[1]: "completed", IDS[2]: "completed"}


def test_a_refused_claim_costs_the_others_nothing(jobs, train, batches):
    jobs[0].claims = 403
    assert train(*IDS) == {IDS[1]: "completed", IDS[2]: "completed"}
    assert batches == [2]


def test_who_has_finished_and_waits_for_the_others_has_a_checkpoint(jobs, train, bases):
    """So that a pause then costs nothing: the job is at its last step."""
    jobs[1].offer(
        base=bases[1],
        recipe=RECIPE,
        hyperparameters=hyperparameters(1).model_copy(update={"n_epochs": 40}),
        rows=rows("secret1"),
    )

    def paused(message):
        if isinstance(message, m.Heartbeat) and message.step == 12 and not jobs[0].of(m.Release):
            jobs[0].state = "paused"

    jobs[0].on = paused
    assert train(*IDS[:2]) == {IDS[0]: "paused", IDS[1]: "completed"}
    (release,) = jobs[0].of(m.Release)
    assert release.checkpoint.step == 12


def test_what_happens_to_one_is_its_own(jobs, train, batches):
    """Cancelled in the middle, or without a row to learn from: the rest goes on."""

    def cancelled(message):
        if isinstance(message, m.Heartbeat) and message.step >= 3:
            jobs[0].state = "cancelled"

    jobs[0].on = cancelled
    jobs[1].spec["conversations"] = m.Download(
        **jobs[1].put(b'{"id": "7", "messages": [{"role": "user", "content": "alone"}]}').model_dump(),
        url=jobs[1].object_url(b'{"id": "7", "messages": [{"role": "user", "content": "alone"}]}'),
    )
    assert train(*IDS) == {IDS[0]: "fenced", IDS[1]: "failed", IDS[2]: "completed"}
    assert batches == [3]
    assert [fail.code for fail in jobs[1].of(m.Fail)] == ["nothing_to_train"]
    assert not jobs[0].of(m.Complete) + jobs[0].of(m.Fail) + jobs[0].of(m.Release)


def test_one_that_fails_is_told_while_the_others_train(jobs, train, monkeypatch):
    heard = {job.job: threading.Event() for job in jobs[:2]}
    record, step = Training.record, TrainingsTogether.step

    def diverges(self, loss):
        record(self, math.nan if self.hyperparameters.seed == 0 else loss)

    def waits(self):
        step(self)
        assert heard[IDS[0]].wait(30), "it diverged at the first step"
        assert heard[IDS[1]].wait(30), "it had nothing to learn from"

    monkeypatch.setattr(Training, "record", diverges)
    monkeypatch.setattr(TrainingsTogether, "step", waits)
    nothing = b'{"id": "7", "messages": [{"role": "user", "content": "alone"}]}'
    jobs[1].spec["conversations"] = m.Download(
        **jobs[1].put(nothing).model_dump(), url=jobs[1].object_url(nothing)
    )
    for job in jobs[:2]:
        job.on = lambda message, told=heard[job.job]: told.set() if isinstance(message, m.Fail) else None
    assert train(*IDS) == {IDS[0]: "failed", IDS[1]: "failed", IDS[2]: "completed"}
    assert [[fail.code for fail in job.of(m.Fail)] for job in jobs] == [
        ["training_diverged"],
        ["nothing_to_train"],
        [],
    ]


def test_one_that_is_no_longer_offered_is_left_out(jobs, train, batches):
    jobs[1].state = "cancelled"
    assert train(*IDS) == {IDS[0]: "completed", IDS[1]: "fenced", IDS[2]: "completed"}
    assert batches == [2]


def test_a_fault_of_the_batch_is_everybodys_and_may_be_tried_again(jobs, train, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("with a user's secret in it")

    monkeypatch.setattr(run, "adapters_train", broken)
    assert train(*IDS) == dict.fromkeys(IDS, "failed")
    for job in jobs:
        (fail,) = job.of(m.Fail)
        assert (fail.code, fail.retry) == ("trainer_error", True)


def test_those_that_do_not_fit_together_are_trained_one_after_the_other(jobs, train, bases, batches):
    offer(jobs[1], bases, 1, recipe=m.Recipe(method="lora", position="prefill", rank=2))
    assert train(*IDS) == dict.fromkeys(IDS, "completed")
    assert batches == []
