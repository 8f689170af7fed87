"""The benchmark's driver on the session's engine: turns of a chat, requests that arrive beside streams, its times."""

import time

import pytest

from benchmarks.measures import measures
from benchmarks.stepping import Run, Stepper
from benchmarks.workload import Request, requests_of
from tests.inference.adapters import random_adapter

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def stepper(engine, base, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stepping")
    made = [
        random_adapter(folder / str(seed), base=base, method="direft", rank=4, seed=900 + seed)
        for seed in range(3)
    ]
    return Stepper(engine.llm, [engine.lora(adapter) for adapter in made])


def drive(stepper, requests, **how):
    run = Run(stepper, requests, **how)
    assert run.advance()
    return run


def test_a_chats_next_prompt_is_all_that_was_said(stepper):
    chats = requests_of(profile="chat", mix="distinct", count=2, adapters=2, max_tokens=60, seed=3)
    run = drive(stepper, chats, batch=2)
    assert [stream.turn for stream in run.streams] == [0, 1, 2, 3, 4] * 2
    for chat, streams in zip(chats, (run.streams[:5], run.streams[5:]), strict=True):
        said = chat.prompt
        for stream, (message, _) in zip(streams, [*chat.later, ([], 0)], strict=True):
            assert stream.prompt == said
            said = [*said, *stream.answer, *message]
        assert [len(stream.answer) for stream in streams] == [
            chat.output,
            *(output for _, output in chat.later),
        ]


def test_an_adapter_is_read_once_and_its_request_is_apart(stepper):
    streams = [Request([200 + index] * 5, 8, -1) for index in range(2)]
    arrival = Request([300] * 5, 1, 2)
    cold = drive(stepper, streams, batch=2, arrivals=[arrival])
    warm = drive(stepper, streams, batch=2, arrivals=[arrival])
    assert (cold.read, warm.read) == (1, 0)
    assert [(stream.arrived, len(stream.answer)) for stream in cold.streams] == [
        (False, 8),
        (False, 8),
        (True, 1),
    ]


def test_no_more_at_once_than_asked(stepper):
    run = drive(stepper, [Request([400 + index] * 3, 3, -1) for index in range(2)], batch=1)
    assert all(
        second.added >= first.stamps[-1] for first, second in zip(run.streams, run.streams[1:], strict=False)
    )
    assert run.seconds >= run.streams[-1].stamps[-1] - run.streams[0].added
    figures = measures(
        {
            "seconds": run.seconds,
            "read": 0,
            "streams": [{**vars(stream), "prompt": len(stream.prompt)} for stream in run.streams],
        }
    )
    assert figures["tokens"] == 2 * (3 + 3)
    assert figures["encode_ms"][0] > 0


def test_a_paused_run_says_the_same_and_its_clock_stands_still(stepper):
    requests = [Request([500 + index] * 4, 4 + index, index) for index in range(2)]
    whole = drive(stepper, requests, batch=2)
    run, slices, asleep = Run(stepper, requests, batch=2), 1, 0.05
    began = time.perf_counter()
    while not run.advance(0):  # one step
        slices += 1
        time.sleep(asleep)
    took = time.perf_counter() - began
    assert slices == 5 + 1  # the longer answer's tokens, and that there is no more to do
    assert [stream.answer for stream in run.streams] == [stream.answer for stream in whole.streams]
    assert run.streams[-1].stamps[-1] - run.streams[0].added <= run.seconds <= took - (slices - 1) * asleep
