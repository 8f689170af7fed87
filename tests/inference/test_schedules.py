"""However requests arrive, are cut up, preempted, paged and given up: the tokens are those of the two-phase reference.

By hand, thousands of schedules: pytest tests/inference/test_schedules.py --hypothesis-profile=schedules
"""

import random

import numpy as np
import pytest
from hypothesis import given, seed, settings

from tests.inference.adapters import random_adapter
from tests.inference.conftest import MANY_SCHEDULES
from tests.inference.engine import Question
from tests.inference.schedules import PROMPTS, Arrival, Play, Schedule, schedules

pytestmark = pytest.mark.engine

#: One LoRA and one DiReFT that act on prompts, their all-position likes, both LoReFTs, and a second LoRA: more than the
#: six that there is memory for.
CHOSEN = (0, 2, 3, 5, 6, 7, 1)


@pytest.fixture(scope="module")
def play(engine, reference, adapters) -> Play:
    text = np.random.default_rng(11).integers(100, 32_000, max(PROMPTS)).tolist()
    return Play(engine, reference, text, [adapters[number] for number in CHOSEN])


#: Every adapter and the base model, with a long prompt and then a short one of the same words; some give up, some ask
#: on. Four at a time in eight KV blocks, in pieces.
EVERYTHING = Schedule(
    arrivals=[
        Arrival(
            after=number % 2,
            prompt=(3, 1)[number // 8],
            adapter=(*range(len(CHOSEN)), None)[number % 8],
            count=5 + number % 8,
            cancelled=9 if number % 4 == 1 else None,
            again=number % 5 == 0,
        )
        for number in range(16)
    ],
    tokens_a_step=48,
    at_once=12,
    slots=2,
    chunk=20,
    reserved=19,
)


def test_a_schedule_that_has_everything(play, engine):
    before = engine.counter("num_preemptions"), play.said, play.compared, play.cancelled
    play.check(EVERYTHING)
    assert play.cancelled > before[3]
    assert engine.counter("num_preemptions") > before[0]
    assert play.compared - before[2] >= 0.8 * (play.said - before[1]), "the reference was hardly ever sure"


def test_schedules_that_nobody_thought_of(play, pytestconfig):
    """Other ones each time; the seed is printed, --hypothesis-seed takes it."""
    given_seed = pytestconfig.getoption("--hypothesis-seed")
    number = int(given_seed) if given_seed else random.SystemRandom().randrange(2**32)
    many = settings.get_current_profile_name() == MANY_SCHEDULES
    print(f"--hypothesis-seed={number}")

    @seed(number)
    @settings(max_examples=settings.default.max_examples if many else 2, deadline=None, database=None)
    @given(schedules(len(CHOSEN)))
    def check(schedule: Schedule) -> None:
        play.check(schedule)

    check()


def test_more_streams_with_an_adapter_each_than_there_are_slots_or_places(engine, reference, base, tmp_path):
    """Of 14 streams twelve may run at once, with 2 slots and memory for 6: in order, and each says what it should."""
    adapters = [
        random_adapter(tmp_path / str(number), base=base, method="direft", rank=4, seed=700 + number)
        for number in range(14)
    ]
    questions = [Question(list(range(800, 809)), adapter, 12) for adapter in adapters]
    for number, question in enumerate(questions):
        engine.begin(str(number), question)
    began, at_once = [], 0
    while engine.llm.llm_engine.has_unfinished_requests():
        for output in engine.llm.llm_engine.step():
            if output.request_id not in began:
                began.append(output.request_id)
            questions[int(output.request_id)].answer = list(output.outputs[0].token_ids)
        at_once = max(at_once, len(engine.core.scheduler.running))
    assert began == [str(number) for number in range(14)]
    assert at_once > 8
    for question in questions:
        assert len(question.answer) == 12
        assert reference.two_phase(question.prompt, question.answer, question.adapter).agrees(question.answer)
    assert len({tuple(question.answer) for question in questions}) > 7, "each says something of its own"
