"""Who cannot be reached is away, which costs a job no attempt; who answers with a fault is not, and it does."""

from pathlib import Path

import pytest

from tests.training_jobs.web_double import DISPATCH, JOB, WORKER, WebDouble
from training_jobs import messages as m
from training_jobs.client import JobCalls, WebApp
from training_jobs.errors import PassingFault
from training_jobs.transfer import Storage

STATUSES = [(None, None), (429, False), (502, False), (503, False), (504, False), (500, True), (403, True)]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr("training_jobs.transfer.time.sleep", lambda seconds: None)


@pytest.fixture
def web():
    double = WebDouble()
    double.offer(
        base=m.Base(name="tiny", digest="0" * 64),
        recipe=m.Recipe(method="direft", position="prefill", rank=4),
        hyperparameters=m.Hyperparameters(n_epochs=1, batch_size=1, learning_rate=1e-3, seed=1),
        rows=["a row"],
    )
    yield double
    double.close()


@pytest.fixture
def spec(web) -> m.JobSpec:
    return WebApp(web.url).claim(JOB, dispatch_token=DISPATCH, claim=m.Claim(worker=WORKER))


@pytest.fixture
def calls(web, spec) -> JobCalls:
    return WebApp(web.url).of_job(spec)


def fault_of(act) -> tuple[str, bool] | None:
    try:
        act()
    except PassingFault as fault:
        return fault.code, fault.counts
    return None


@pytest.mark.parametrize(("status", "counts"), STATUSES)
def test_what_storage_answers(web, calls, tmp_path, status, counts):
    web.storage = status
    kept = tmp_path / "kept"
    kept.write_bytes(b"an adapter")
    code = "storage_failed" if counts else "storage_unavailable"
    expected = None if status is None else (code, counts)
    assert fault_of(lambda: Storage().download(web.spec["conversations"], tmp_path / "rows")) == expected
    assert fault_of(lambda: Storage().upload(kept, calls)) == expected


def test_storage_that_does_not_answer(tmp_path):
    nowhere = m.Download(sha256="0" * 64, size=1, url="http://127.0.0.1:9/x")
    assert fault_of(lambda: Storage().download(nowhere, tmp_path / "rows")) == ("storage_unavailable", False)


@pytest.mark.parametrize("lost", [True, False])
def test_bytes_that_are_gone_or_others(web, tmp_path, lost):
    asked = web.spec["conversations"]
    if lost:
        web.objects.clear()
    else:
        web.objects[asked.sha256] = b"a roW"
    assert fault_of(lambda: Storage().download(asked, tmp_path / "rows")) == ("storage_failed", True)


def test_a_full_disk(web):
    with pytest.raises(PassingFault, match="No space left on device") as full:
        Storage().download(web.spec["conversations"], Path("/dev/full"))
    assert (full.value.code, full.value.counts) == ("disk_failed", True)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        *[(status, ("web_away", False)) for status in (429, 502, 503, 504)],
        (500, ("web_failed", True)),
        (None, None),
    ],
)
def test_what_the_web_application_answers(web, calls, status, expected):
    web.on = lambda message: status
    assert fault_of(lambda: calls.release(m.Release(epoch=1), patience=0)) == expected


def test_an_address_that_answers_something_else(web, calls):
    web.on = lambda message: 200
    assert fault_of(lambda: calls.release(m.Release(epoch=1), patience=0)) == ("web_failed", True)


def test_a_web_application_that_does_not_answer(spec):
    calls = WebApp("http://127.0.0.1:9").of_job(spec)
    assert fault_of(lambda: calls.release(m.Release(epoch=1), patience=0)) == ("web_away", False)
