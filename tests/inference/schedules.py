"""Schedules: who asks what and when, who gives up, and how cramped the scheduler is meanwhile; and how to play one.

An engine is played with, not restarted: its scheduler reads these limits anew in every step.
"""

import copy
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.inference.adapters import Adapter
from tests.inference.engine import Engine, Question
from tests.inference.reference import Reference

#: Lengths of prompts, all of them beginnings of one text: what can be shared between them is, what can't must not be.
PROMPTS = (1, 31, 33, 64, 80)
LONGEST_ANSWER = 12
#: No schedule needs so many steps; one that does goes round in circles.
STEPS = 2000


@dataclass(frozen=True)
class Arrival:
    """Steps `after` the one before it. `prompt` and `adapter` are numbers in what a Play was given."""

    after: int
    prompt: int
    #: None is the base model.
    adapter: int | None
    count: int
    #: After how many steps, if ever.
    cancelled: int | None
    #: Whether it goes on with what it was told: that is prompt then, and its KV was computed without the adapter.
    again: bool


@dataclass(frozen=True)
class Schedule:
    arrivals: list[Arrival]
    tokens_a_step: int
    at_once: int
    slots: int
    #: Tokens of one prompt a step, so that several are unfinished at a time; 0 is no limit.
    chunk: int
    #: KV blocks that nobody gets; the engine has 27.
    reserved: int


def schedules(adapters: int) -> st.SearchStrategy[Schedule]:
    arrival = st.builds(
        Arrival,
        after=st.sampled_from((0, 0, 0, 1, 2, 5)),
        prompt=st.integers(0, len(PROMPTS) - 1),
        adapter=st.sampled_from((None, *range(adapters))),
        count=st.integers(1, LONGEST_ANSWER),
        cancelled=st.sampled_from((None, None, None, 0, 2, 5, 12)),
        again=st.sampled_from((False, False, True)),
    )
    return st.builds(
        Schedule,
        arrivals=st.lists(arrival, min_size=3, max_size=10),
        tokens_a_step=st.integers(8, 64),
        at_once=st.integers(1, 12),
        slots=st.integers(1, 2),
        chunk=st.sampled_from((0, 0, 5, 20)),
        reserved=st.integers(0, 22),
    )


@contextmanager
def limits(engine: Engine, schedule: Schedule) -> Iterator[None]:
    scheduler = engine.core.scheduler
    pool = scheduler.kv_cache_manager.block_pool
    before = vars(scheduler).copy()
    scheduler.max_num_scheduled_tokens = schedule.tokens_a_step
    scheduler.max_num_active_reqs = schedule.at_once
    scheduler.scheduler_config = copy.copy(scheduler.scheduler_config)
    scheduler.scheduler_config.long_prefill_token_threshold = schedule.chunk
    # The workers have the same object, and their two slots.
    scheduler.lora_config = copy.copy(scheduler.lora_config)
    scheduler.lora_config.max_loras = schedule.slots
    taken = pool.get_new_blocks(schedule.reserved)
    try:
        yield
    finally:
        pool.free_blocks(taken)
        for name in ("max_num_scheduled_tokens", "max_num_active_reqs", "scheduler_config", "lora_config"):
            setattr(scheduler, name, before[name])


class Play:
    """Plays schedules on the engine, each from an empty prefix cache, and compares what is said with the reference."""

    def __init__(
        self, engine: Engine, reference: Reference, text: Sequence[int], adapters: Sequence[Adapter]
    ) -> None:
        self._engine = engine
        self._reference = reference
        self._text = list(text)
        self._adapters = adapters
        self._known: dict[tuple[tuple[int, ...], str | None], tuple[list[int], list[int]]] = {}
        self.said = self.compared = self.cancelled = 0

    def check(self, schedule: Schedule) -> None:
        self._engine.forget_prefixes()
        with limits(self._engine, schedule):
            questions = self._run(schedule)
        for question in questions:
            if question.finish is None:
                self.cancelled += 1
            else:
                assert (question.finish, len(question.answer)) == ("length", question.count)
            self._compare(question)

    def _run(self, schedule: Schedule) -> list[Question]:
        """What everybody was told; `finish` is None where one gave up first."""
        vllm = self._engine.llm.llm_engine
        questions: list[Question] = []
        coming, gone, again = deque(schedule.arrivals), defaultdict(list), {}
        step = last = 0

        def begin(question: Question) -> str:
            questions.append(question)
            name = str(len(questions) - 1)
            self._engine.begin(name, question)
            return name

        try:
            while coming or vllm.has_unfinished_requests():
                assert step < STEPS, "it never ends"
                while coming and last + coming[0].after <= step:
                    arrival, last = coming.popleft(), step
                    name = begin(self._question(arrival))
                    again[name] = arrival.again
                    if arrival.cancelled is not None:
                        gone[step + arrival.cancelled].append(name)
                vllm.abort_request(gone[step])
                for output in vllm.step() if vllm.has_unfinished_requests() else ():
                    question = questions[int(output.request_id)]
                    question.answer = list(output.outputs[0].token_ids)
                    question.finish = output.outputs[0].finish_reason
                    if output.finished and again.pop(output.request_id, False):
                        prompt = [*question.prompt, *question.answer, *self._text[:3]]
                        begin(Question(prompt, question.adapter, question.count))
                step += 1
        finally:
            vllm.abort_request([str(number) for number in range(len(questions))])
        return questions

    def _question(self, arrival: Arrival) -> Question:
        adapter = None if arrival.adapter is None else self._adapters[arrival.adapter]
        return Question(self._text[: PROMPTS[arrival.prompt]], adapter, arrival.count)

    def _compare(self, question: Question) -> None:
        """Token for token, as far as the reference is sure; it is asked again only when an answer is longer."""
        answer, adapter = question.answer, question.adapter
        if not answer:
            return
        key = tuple(question.prompt), adapter and adapter.name
        said, sure = self._known.get(key, ([], []))
        if len(said) < len(answer):
            said, sure = answer, self._reference.two_phase(question.prompt, answer, adapter).sure
        kind = adapter and (adapter.manifest.method, adapter.manifest.position)
        assert answer[: len(sure)] == sure[: len(answer)], f"{len(question.prompt)} tokens of prompt, {kind}"
        self._known[key] = said, sure
        self.said += len(answer)
        self.compared += min(len(answer), len(sure))
