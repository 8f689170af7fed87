"""However the stack ends, five seconds later nothing of it is left, and the next start finds its data."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from local_stack import processes
from local_stack.home import ROOT, Home
from tests.local_stack.gone import all_gone

pytestmark = pytest.mark.stack


@pytest.fixture
def place(public: Path) -> Home:
    return Home(public)


def begin(place: Home, *more: str) -> tuple["subprocess.Popen[bytes]", set[int]]:
    command = [sys.executable, "-m", "local_stack", "up", "--fast", "--parts", "postgres,valkey,s3"]
    process = subprocess.Popen(
        [*command, "--home", str(place.folder), *more],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not ((state := place.state()) and state["ready"]):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    pids = {found.pid for found in processes.descendants(process.pid)}
    assert len(pids) > 5  # supervisor, PostgreSQL and its backends, Valkey, weed
    return process, pids


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_asked_to_stop(place: Home, signum: signal.Signals):
    process, pids = begin(place)
    process.send_signal(signum)
    assert all_gone(pids)
    assert process.wait(5) == 0
    assert not place.state_file.exists()


def test_guard_killed(place: Home):
    process, pids = begin(place)
    process.kill()
    process.wait()
    assert all_gone(pids)


def test_supervisor_killed_and_started_again(place: Home):
    process, pids = begin(place)
    state = place.state()
    assert state is not None
    ports, url = (place.run / "ports.json").read_text(), state["env"]["ATTUNE_DATABASE_OWNER_URL"]
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("CREATE TABLE survivor (id int)")
    os.kill(state["supervisor"], signal.SIGKILL)
    assert all_gone(pids)
    assert process.wait(5) == 128 + signal.SIGKILL
    process, pids = begin(place)
    assert (place.run / "ports.json").read_text() == ports
    with psycopg.connect(url) as owner:
        assert owner.execute("SELECT count(*) FROM survivor").fetchone() == (0,)
    process.terminate()
    assert all_gone(pids)


def test_guard_and_supervisor_killed_at_once(place: Home):
    process, pids = begin(place)
    state = place.state()
    assert state is not None
    os.kill(state["supervisor"], signal.SIGSTOP)  # so that it cannot react to the guard's death
    process.kill()
    process.wait()
    os.kill(state["supervisor"], signal.SIGKILL)
    assert all_gone(pids)


def test_leash(place: Home):
    process, pids = begin(place, "--leash")
    assert process.stdin is not None
    process.stdin.close()
    assert all_gone(pids)
    assert process.wait(5) == 0


@pytest.mark.engine
def test_the_engine_core_and_the_training_process_are_gone_too(place: Home):
    """They are children of parts, and would hold gigabytes of memory. By Ctrl-C the session's own stack ends
    (tests/conftest.py)."""
    command = [sys.executable, "-m", "local_stack", "up", "--fast", "--home", str(place.folder)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    wanted = {"VLLM::EngineCore", "ForkPoolWorker", "uvicorn", "dispatch"}
    deadline = time.monotonic() + 400
    while True:
        below = processes.descendants(process.pid)
        lines = [command_line(found.pid) for found in below]
        if all(any(name in line for line in lines) for name in wanted):
            break
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.2)
    state = place.state()
    assert state is not None
    os.kill(state["supervisor"], signal.SIGKILL)
    assert all_gone({found.pid for found in below})
    process.wait(5)
    assert not place.locked()


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:  # gone meanwhile
        return ""
