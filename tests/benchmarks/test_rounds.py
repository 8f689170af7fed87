"""Runs of one group advance together in slices, where each has an engine of its own, and one after the other else.

The engines are processes that speak as engine_worker does and put a line into a common file for each slice.
"""

import subprocess
import sys

import pytest

from benchmarks.clock import Clock
from benchmarks.engine_worker import ANSWER
from benchmarks.figures import FIGURES, ROWS, Case, Figure
from benchmarks.rounds import in_slices, order, requests_for, run_group
from benchmarks.workers import Engines, Worker

#: Its arguments: its name, the file, of how many slices a run is, and how many it lives.
ENGINE = f"""
import json, sys
name, diary, slices, last = sys.argv[1], open(sys.argv[2], "a", buffering=1), int(sys.argv[3]), int(sys.argv[4])
for line in sys.stdin:
    told = json.loads(line)
    if "advance" not in told:
        left = slices
        continue
    left = 0 if told["advance"] > 1 else left - 1
    last -= 1
    if last < 0:
        sys.exit("the reason")
    print(name, file=diary)
    stream = {{"prompt": 3, "turn": 0, "arrived": False, "added": 0.0, "stamps": [1.0, 2.0], "answer": [7, 8]}}
    run = {{"seconds": 2.0, "read": 0, "streams": [stream]}}
    print("{ANSWER}" + json.dumps({{"paused": True}} if left else run), flush=True)
"""
BASE, LORA_P, DIREFT_P = (Case(kind) for kind in ("base", "lora_p", "direft_p"))


@pytest.fixture
def diary(tmp_path):
    path = tmp_path / "diary"
    path.touch()
    return path


@pytest.fixture
def engines(tmp_path, diary):
    """Starts engines; each one's slices in a run, and slices that it lives."""
    made = Engines()

    def start(**slices):
        for engine, (of_a_run, last) in slices.items():
            log = (tmp_path / f"{engine}.log").open("a")
            process = subprocess.Popen(
                [sys.executable, "-c", ENGINE, engine, diary, str(of_a_run), str(last)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
            made.up[engine] = Worker(engine, {}, process, log)
        return made

    yield start
    for worker in made.up.values():
        worker.stop()


def ran(engines, group, number=0):
    runs = {}
    run_group(engines, group, Figure("A figure", (group,), requests=2), number, runs)
    return runs


def test_engines_take_turns_and_the_longer_run_goes_on_alone(engines, diary):
    up = engines(base=(2, 99), ours=(4, 99))
    runs = ran(up, (BASE, LORA_P))
    assert diary.read_text().split() == ["base", "ours"] * 2 + ["ours"] * 2
    assert [runs[case.name]["throughput"] for case in (BASE, LORA_P)] == [2.5, 2.5]


def test_every_other_round_the_other_one_is_first(engines, diary):
    up = engines(base=(2, 99), ours=(2, 99))
    ran(up, (BASE, LORA_P), number=1)
    assert diary.read_text().split() == ["ours", "base"] * 2


def test_cases_of_one_engine_run_one_after_the_other_in_one_go(engines, diary):
    runs = ran(engines(ours=(4, 99)), (LORA_P, DIREFT_P))
    assert diary.read_text().split() == ["ours"] * 2
    assert list(runs) == [LORA_P.name, DIREFT_P.name]


def test_an_engine_that_ends_does_not_hold_up_the_others(engines, diary):
    up = engines(base=(4, 99), ours=(4, 1))
    runs = ran(up, (BASE, LORA_P))
    assert diary.read_text().split() == ["base", "ours"] + ["base"] * 3
    assert list(runs) == [BASE.name]
    assert (list(up.up), "the reason" in up.failed["ours"]) == (["base"], True)
    assert list(ran(up, (BASE, LORA_P), number=1)) == [BASE.name]


def test_adapters_that_should_have_been_read_and_were_not_are_a_failure(engines):
    cold = Case("lora_p", adapters=4, arrivals="cold")
    up = engines(ours=(1, 99))
    assert ran(up, (cold,)) == {}
    assert "0 adapters were read from disk where 2 should have been" in up.failed["ours"]


def test_what_is_cold_comes_before_what_is_then_warm():
    (group,) = ROWS["cold-loads"].groups
    assert order(group, 0) == order(group, 1) == group
    assert not in_slices(group)


def test_a_clock_stands_still_but_while_it_runs():
    clock = Clock()
    assert clock.now() == clock.now() == 0
    with clock.running():
        while not clock.now():
            pass
        before = clock.now()
        while clock.now() == before:
            pass
    stopped = clock.now()
    assert stopped == clock.now() > before
    with clock.running():
        assert clock.now() >= stopped


def test_rounds_have_their_own_requests():
    case, figure = FIGURES["share"].cases[1], FIGURES["share"]
    assert requests_for(case, figure, 0) == requests_for(case, figure, 0)
    assert requests_for(case, figure, 0) != requests_for(case, figure, 1)


def test_cold_adapters_are_those_that_the_last_round_did_not_use():
    figure = ROWS["cold-loads"]
    alone, cold, warm = figure.cases
    streams, none = requests_for(alone, figure, 0)
    assert (len(streams), none) == (8, [])
    assert all(stream.adapter == -1 and len(stream.prompt) + stream.output == 240 for stream in streams)
    arriving = [requests_for(cold, figure, number)[1] for number in range(3)]
    used = [{request.adapter for request in requests} for requests in arriving]
    assert [len(adapters) for adapters in used] == [figure.cpu_slots] * 3
    assert not used[0] & used[1]
    assert used[0] == used[2]
    assert requests_for(warm, figure, 0) == requests_for(cold, figure, 0)
