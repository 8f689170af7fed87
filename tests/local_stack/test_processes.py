"""A part whose own children refuse to die: the shape of vLLM's engine core and Celery's pool."""

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from local_stack import guard, processes
from local_stack.home import Home
from local_stack.plan import Plan
from local_stack.service import CommandReady, NotReadyError, Service
from local_stack.supervisor import Supervisor

STUBBORN = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
folder = pathlib.Path(sys.argv[1])
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()  # leaves the session of its part
        (folder / f"grandchild-{os.getpid()}").touch()
        time.sleep(600)
    (folder / f"child-{os.getpid()}").touch()
    time.sleep(600)
while len(list(folder.glob("*child-*"))) < 2:
    time.sleep(0.01)
(folder / f"main-{os.getpid()}").touch()
time.sleep(600)
"""


def stubborn(folder: Path) -> Service:
    def ready() -> None:
        if not list(folder.glob("main-*")):
            raise NotReadyError("no file yet")

    command = (sys.executable, "-c", STUBBORN, str(folder))
    return Service(
        name="stubborn", command=command, env={}, cwd=folder, ready=ready, needs=("step",), grace=0.5
    )


def step(folder: Path) -> Service:
    return Service(name="step", command=("/bin/true",), env={}, cwd=folder, once=True)


@pytest.fixture
def place(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder


def begin(place: Home, *services: Service) -> int:
    """Forks a guard with a supervisor over `services`; the guard's pid."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        code = 1
        try:
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
            lock = place.lock()
            todo = Plan(services, {}, {}, {})
            code = guard.guarded(place, lambda me: Supervisor(place, todo, guard=me).run(), leash=False)
            lock.close()
        finally:
            os._exit(code)
    return pid


def until(condition, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def pids(marks: Path) -> set[int]:
    return {int(file.name.rpartition("-")[2]) for file in marks.iterdir()}


def alive(numbers: set[int]) -> set[int]:
    return numbers & {found.pid for found in processes.table() if found.state not in "ZX"}


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["guard", "supervisor", signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stubborn_grandchildren_are_gone_within_five_seconds(
    place: Home, marks: Path, victim: str | signal.Signals
):
    started = begin(place, step(marks), stubborn(marks))
    until(lambda: (state := place.state()) and state["ready"])
    state = place.state()
    assert state is not None
    family = pids(marks)
    assert len(family) == 3
    assert alive(family) == family
    if isinstance(victim, signal.Signals):
        os.kill(started, victim)
    else:
        os.kill(state["pid" if victim == "guard" else "supervisor"], signal.SIGKILL)
    until(lambda: not alive(family | {state["supervisor"]}), seconds=5)
    os.waitpid(started, 0)
    assert not place.locked()


@pytest.mark.slow
def test_what_a_dead_part_left_in_its_session_is_ended_before_it_starts_again(place: Home, marks: Path):
    started = begin(place, step(marks), stubborn(marks))
    until(lambda: (state := place.state()) and state["ready"])
    [main] = [int(file.name[5:]) for file in marks.glob("main-*")]
    [child] = [int(file.name[6:]) for file in marks.glob("child-*")]
    os.kill(main, signal.SIGKILL)
    until(lambda: len(list(marks.glob("main-*"))) == 2)
    assert not alive({main, child})
    os.kill(started, signal.SIGTERM)
    until(lambda: not alive(pids(marks)), seconds=5)
    os.waitpid(started, 0)


def test_a_part_that_never_gets_ready_ends_the_start_and_says_where_to_look(place: Home, marks: Path, capfd):
    failing = Service(
        name="failing", command=("/bin/sh", "-c", "echo the reason; exit 7"), env={}, cwd=marks, once=True
    )
    pid = os.fork()
    if pid == 0:
        code = guard.guarded(
            place, lambda me: Supervisor(place, Plan((failing,), {}, {}, {}), guard=me).run(), leash=False
        )
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    shown = capfd.readouterr().out
    assert "failing ended with 7" in shown
    assert "the reason" in shown
    assert str(place.log("failing")) in shown


def test_a_part_that_works_wrongly_ends_the_start_at_once_with_its_sentence(place: Home, marks: Path, capfd):
    check = "echo a library warns; echo Do not serve with it.; exit 3"
    wrong = Service(
        name="wrong",
        command=("/bin/sleep", "600"),
        env={},
        cwd=marks,
        ready=CommandReady(("/bin/sh", "-c", check), {}, marks, place.log("wrong-ready"), wrong=3),
        patience=600,
    )
    pid = os.fork()
    if pid == 0:
        code = guard.guarded(
            place, lambda me: Supervisor(place, Plan((wrong,), {}, {}, {}), guard=me).run(), leash=False
        )
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    shown = capfd.readouterr().out
    assert "wrong is up, and wrong. Do not serve with it." in shown
    assert place.state() is None


@pytest.mark.slow
def test_needs_are_started_first_and_stopped_last(place: Home, marks: Path):
    def noisy(name: str, *needs: str) -> Service:
        script = f"echo start-{name} >> order; trap 'echo stop-{name} >> order; exit' TERM; "
        script += "while :; do sleep 0.05; done"
        ready = lambda: None if f"start-{name}" in order() else (_ for _ in ()).throw(NotReadyError(name))  # noqa: E731
        return Service(
            name=name, command=("/bin/sh", "-c", script), env={}, cwd=marks, ready=ready, needs=needs
        )

    def order() -> list[str]:
        file = marks / "order"
        return file.read_text().split() if file.exists() else []

    once = replace(noisy("step", "store"), command=("/bin/sh", "-c", "echo start-step >> order"), once=True)
    started = begin(place, noisy("app", "step", "store"), once, noisy("store"))
    until(lambda: (state := place.state()) and state["ready"])
    os.kill(started, signal.SIGTERM)
    os.waitpid(started, 0)
    assert order() == ["start-store", "start-step", "start-app", "stop-app", "stop-store"]


@pytest.mark.parametrize("leash", [False, True])
def test_only_who_started_it_by_hand_is_told_how_to_stop_it(
    place: Home, leash: bool, capsys: pytest.CaptureFixture[str]
):
    Supervisor(place, Plan((), {}, {"web": "http://web.example"}, {}), guard=0, leash=leash).announce()
    said = capsys.readouterr().out
    assert "All parts are up" in said
    assert ("Ctrl-C" in said) == ("http://web.example" in said) == (not leash)
