"""Served by vLLM = two phases in transformers = one pass of the trainer, token for token.

One cramped engine for all tests: slots for 2 adapters, memory for 6 (there are 8), 64 tokens a step, 28 KV blocks of 32
tokens, prefix caching on. So prompts are cut into chunks, requests are preempted and recompute their own answers,
adapters are paged, and blocks are shared where, and only where, they may be.
"""

from collections.abc import Callable
from operator import itemgetter

import numpy as np
import pytest

from tests.inference.adapters import random_adapter
from tests.inference.engine import BLOCK, Engine, Question
from tests.inference.reference import Reference
from tests.inference.trainer_side import TrainerSide

pytestmark = pytest.mark.engine

#: One of each kind that matters most: LoRA_P, LoRA, DiReFT_P, DiReFT.
FOUR = itemgetter(0, 2, 3, 5)
LENGTHS = (1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 300)


@pytest.fixture
def tokens():
    rng = np.random.default_rng(7)
    return lambda count: rng.integers(100, 32_000, count).tolist()


@pytest.fixture
def check(reference: Reference, trainer: TrainerSide) -> Callable[[list[Question]], None]:
    """Every answer, both ways; and enough of each was compared for that to mean something."""

    def check(questions: list[Question]) -> None:
        compared = 0
        for q in sorted(questions, key=lambda q: q.adapter.name if q.adapter else ""):
            where = f"{len(q.prompt)} tokens, {q.adapter and (q.adapter.manifest.method, q.adapter.manifest.position)}"
            assert len(q.answer) == q.count, where
            two_phase = reference.two_phase(q.prompt, q.answer, q.adapter)
            assert two_phase.agrees(q.answer), f"two phases, {where}"
            assert trainer.one_pass(q.prompt, q.answer, q.adapter).agrees(q.answer), f"one pass, {where}"
            compared += len(two_phase.sure)
        assert compared >= 0.8 * sum(q.count for q in questions), "the reference was hardly ever sure"

    return check


def test_the_reference_is_what_one_decodes_by_hand(reference, adapters, tokens):
    prompt = tokens(5)
    for adapter in (None, adapters[0], adapters[4], adapters[5]):
        answer = reference.greedy(prompt, 8, adapter)
        assert reference.two_phase(prompt, answer, adapter).agrees(answer)


def test_everything_at_once(engine: Engine, check, adapters, tokens):
    """Base requests and four adapters at every length, all eight at one, with 2 slots; preempted, cut to pieces."""
    groups = [
        [
            Question(prompt, adapter)
            for adapter in ((*adapters, None) if len(prompt) == BLOCK + 1 else (*FOUR(adapters), None))
        ]
        for prompt in map(tokens, LENGTHS)
    ]
    questions = [question for group in groups for question in group]
    before = engine.counter("num_preemptions")
    engine.ask(questions)
    assert engine.counter("num_preemptions") > before, (
        "nothing was preempted: the test proves less than it says"
    )
    check(questions)
    for group in groups:
        answers = {tuple(question.answer) for question in group}
        assert len(answers) == len(group), "two adapters, or one and the base model, say the same"


def test_loras_of_some_projections(engine: Engine, check, base, tmp_path, tokens):
    """vLLM packs q, k and v into one layer, and gate and up into another: here each of those has holes."""
    chosen = (
        ("self_attn.q_proj", "self_attn.v_proj", "mlp.gate_proj"),
        ("self_attn.k_proj", "mlp.up_proj", "mlp.down_proj"),
    )
    partial = [
        random_adapter(
            tmp_path / str(number), base=base, method="lora", position="prefill", seed=90, modules=modules
        )
        for number, modules in enumerate(chosen)
    ]
    prompt = tokens(BLOCK + 1)
    questions = [Question(prompt, adapter, 12) for adapter in (None, *partial)]
    engine.ask(questions)
    check(questions)
    assert len({tuple(question.answer) for question in questions}) == 3, "each of them acts"


@pytest.mark.parametrize(("length", "cached"), [(4 * BLOCK, 3 * BLOCK), (4 * BLOCK + 1, 4 * BLOCK)])
def test_prefix_hits_change_nothing(engine: Engine, check, adapters, tokens, length, cached):
    """Twice the same question, alone each time: the second is answered from cached blocks.

    What is left to compute is a block, or one token: vLLM runs that as if it had been generated.
    """
    engine.forget_prefixes()
    prompt = tokens(length)
    for adapter in (None, *FOUR(adapters), adapters[6]):
        first, second = Question(prompt, adapter, 12), Question(prompt, adapter, 12)
        engine.ask([first])
        before = engine.counter("prefix_cache_hits")
        engine.ask([second])
        assert engine.counter("prefix_cache_hits") - before == cached, (
            "all blocks but the last prompt token's"
        )
        assert first.answer == second.answer
        check([second])


def test_a_conversation(engine: Engine, check, adapters, tokens):
    """Five turns; each prompt holds the engine's own earlier answers, which are adapted now and were not then.

    The first answer fills a block of its own (positions 32 to 63), which is in the cache and must not be taken.
    """
    engine.forget_prefixes()
    talks = [Question(tokens(BLOCK - 1), adapter) for adapter in (None, *FOUR(adapters), adapters[6])]
    hits = engine.counter("prefix_cache_hits")
    for _ in range(5):
        engine.ask(talks)
        check(talks)
        talks = [Question([*q.prompt, *q.answer, *tokens(7)], q.adapter, 12) for q in talks]
    assert engine.counter("prefix_cache_hits") > hits


def test_prompts_that_differ_in_length_alone(engine: Engine, check, adapters, tokens):
    """Prompts of 40 and 50 tokens over the same 64: equal tokens in the second block, other KV."""
    for adapter in (adapters[0], adapters[3], adapters[6]):
        engine.forget_prefixes()
        short = Question(tokens(40), adapter)
        engine.ask([short])
        longer = Question([*short.prompt, *short.answer[:10]], adapter)
        whole = Question([*short.prompt, *short.answer[:24]], adapter)
        engine.ask([longer])
        engine.ask([whole])
        check([short, longer, whole])
