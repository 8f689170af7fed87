"""A job stays this worker's for as long as anything of it is under way, and no piece of news can end that."""

import threading
import time
from pathlib import Path

import pytest

from training_jobs import lease as lease_module
from training_jobs import messages as m
from training_jobs.client import WebAway
from training_jobs.errors import Away, Fenced, OurFault
from training_jobs.lease import Lease

STORED = m.Object(sha256="a" * 64, size=3)


class Calls:
    """The web application's ear: keeps heartbeats, and answers as it is told."""

    epoch = 1

    def __init__(self) -> None:
        self.beats: list[m.Heartbeat] = []
        self.released: list[m.Release] = []
        self.answer = lambda beat: None

    def heartbeat(self, beat: m.Heartbeat) -> m.HeartbeatReply:
        beat = m.Heartbeat.model_validate_json(beat.model_dump_json())
        self.beats.append(beat)
        if (error := self.answer(beat)) is not None:
            raise error
        return m.HeartbeatReply(state="running", stop=False)

    def release(self, release: m.Release, *, patience: float) -> m.StateReply:
        self.released.append(release)
        return m.StateReply(state="queued")


class SlowStorage:
    """Uploads end when told to."""

    def __init__(self) -> None:
        self.go, self.uploaded = threading.Event(), []
        self.error: Exception | None = None

    def upload(self, path: Path, calls: Calls) -> m.Object:
        assert self.go.wait(10)
        if self.error is not None:
            raise self.error
        self.uploaded.append(path.name)
        return STORED


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def storage() -> SlowStorage:
    return SlowStorage()


@pytest.fixture
def leaving() -> threading.Event:
    return threading.Event()


@pytest.fixture
def lease(calls, storage, leaving, monkeypatch):
    monkeypatch.setattr(lease_module, "HEARTBEAT_SECONDS", 0.01)
    made = Lease(calls, storage, leaving, leave_seconds=0.3)
    made.start()
    yield made
    storage.go.set()
    made.close()


def until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def saved(tmp_path: Path, step: int) -> Path:
    path = tmp_path / f"checkpoint-{step}"
    path.write_bytes(b"abc")
    return path


@pytest.mark.parametrize(
    ("drop", "uploaded"), [(True, ["checkpoint-1"]), (False, ["checkpoint-1", "checkpoint-2"])]
)
def test_heartbeats_go_on_while_the_last_checkpoint_is_on_its_way(
    lease, calls, storage, tmp_path, drop, uploaded
):
    lease.checkpoint(1, saved(tmp_path, 1))
    until(lambda: not lease._uploads._waiting)
    lease.checkpoint(2, saved(tmp_path, 2))
    finishing = threading.Thread(target=lambda: lease.finish_uploads(drop=drop))
    finishing.start()
    before = len(calls.beats)
    until(lambda: len(calls.beats) > before + 5)
    assert finishing.is_alive()
    storage.go.set()
    finishing.join(10)
    assert storage.uploaded == uploaded
    assert lease.last_checkpoint.step == len(uploaded)
    before = len(calls.beats)
    until(lambda: len(calls.beats) > before + 1)
    assert list(tmp_path.iterdir()) == []


def test_a_newer_checkpoint_replaces_one_that_waits(lease, storage, tmp_path):
    lease.checkpoint(1, saved(tmp_path, 1))
    until(lambda: not lease._uploads._waiting)
    for step in (2, 3):
        lease.checkpoint(step, saved(tmp_path, step))
    storage.go.set()
    lease.finish_uploads(drop=False)
    assert storage.uploaded == ["checkpoint-1", "checkpoint-3"]
    assert list(tmp_path.iterdir()) == []


def test_an_upload_that_is_fenced_ends_the_job_and_one_that_fails_does_not(lease, storage, tmp_path):
    storage.go.set()
    storage.error = Away("storage_unavailable", "away")
    lease.checkpoint(1, saved(tmp_path, 1))
    until(lambda: not list(tmp_path.iterdir()))
    assert (lease.ended, lease.last_checkpoint) == (None, None)
    storage.error = Fenced()
    lease.checkpoint(2, saved(tmp_path, 2))
    until(lambda: lease.ended == "fenced")


def test_a_metric_that_is_no_number_is_left_out(lease, calls):
    lease.event("odd", step=3.0, valid_loss=float("nan"), train_loss=float("inf"))
    lease.event("none", valid_loss=float("nan"))
    until(lambda: sum(len(beat.events) for beat in calls.beats) == 2)
    told = [event for beat in calls.beats for event in beat.events]
    assert [event.metrics for event in told] == [{"step": 3.0}, None]


def test_of_preference_pairs_the_accuracy_is_told_beside_the_loss(lease, calls):
    lease.held_out(9, 0.5, None)
    lease.held_out(9, 0.5, 0.75)
    until(lambda: sum(len(beat.events) for beat in calls.beats) == 2)
    answers, pairs = [event for beat in calls.beats for event in beat.events]
    assert answers.metrics == {"step": 9, "valid_loss": 0.5}
    assert pairs.metrics == {"step": 9, "valid_loss": 0.5, "valid_accuracy": 0.75}
    assert "75% of the held-out pairs" in pairs.message


def test_news_that_are_refused_are_not_said_again(lease, calls):
    refusal = OurFault("refused_by_web", "no")
    calls.answer = lambda beat: refusal if beat.events else None
    lease.event("refused")
    until(lambda: any(beat.events for beat in calls.beats))
    before = len(calls.beats)
    until(lambda: len(calls.beats) > before + 3)
    assert sum(len(beat.events) for beat in calls.beats) == 1


def test_a_checkpoint_that_is_refused_does_not_cost_the_events(lease, calls, storage, tmp_path):
    calls.answer = lambda beat: OurFault("refused_by_web", "no") if beat.checkpoint else None
    storage.go.set()
    lease.checkpoint(1, saved(tmp_path, 1))
    until(lambda: any(beat.checkpoint for beat in calls.beats))
    lease.event("told")
    until(lambda: any(beat.events and not beat.checkpoint for beat in calls.beats))
    assert lease.last_checkpoint is None


def test_news_wait_for_a_web_application_that_is_away(lease, calls):
    calls.answer = lambda beat: WebAway("away")
    lease.event("patient")
    until(lambda: len(calls.beats) > 3)
    calls.answer = lambda beat: None
    lease.close()
    lease.tell_the_rest()
    assert [event.message for event in calls.beats[-1].events] == ["patient"]


def test_an_event_that_is_told_again_has_its_number(lease, calls):
    calls.answer = lambda beat: WebAway("the answer was lost")
    lease.event("first")
    until(lambda: any(beat.events for beat in calls.beats))
    lease.event("second")
    until(lambda: len(calls.beats[-1].events) == 2)
    calls.answer = lambda beat: None
    until(lambda: not calls.beats[-1].events)
    lease.event("third")
    until(lambda: any(beat.events and beat.events[0].message == "third" for beat in calls.beats))
    told = {(event.number, event.message) for beat in calls.beats for event in beat.events}
    assert told == {(1, "first"), (2, "second"), (3, "third")}


def test_an_error_that_nobody_foresaw_does_not_end_the_heartbeats(lease, calls, caplog):
    calls.answer = lambda beat: ZeroDivisionError("a user's secret")
    lease.event("patient")
    until(lambda: len(calls.beats) > 3)
    calls.answer = lambda beat: None
    until(lambda: not lease._events)
    assert "builtins.ZeroDivisionError" in caplog.text
    assert "secret" not in caplog.text


def test_a_step_without_end_does_not_keep_the_job(lease, calls, storage, leaving, tmp_path):
    """Training is asked to stop and never does: the job is given back once, with what is in storage."""
    storage.go.set()
    lease.checkpoint(1, saved(tmp_path, 1))
    until(lambda: lease.last_checkpoint)
    leaving.set()
    assert lease.ended == "leaving"
    until(lambda: lease.ended == "fenced")
    until(lambda: calls.released)
    lease.close()
    assert calls.released == [m.Release(epoch=1, checkpoint=m.Checkpoint(**STORED.model_dump(), step=1))]


def test_a_job_that_ends_in_time_is_left_to_say_so_itself(lease, calls, leaving):
    leaving.set()
    lease.close()
    assert lease.ended == "leaving"
    assert calls.released == []
