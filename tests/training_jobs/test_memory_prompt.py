"""The base model that is told the data in a prompt: what fits into it, and what it says of the held-out targets."""

import json

import numpy as np
import pytest
import torch

from adapters_store.chat_template import ChatEncoder
from tests.training_jobs.tiny import TEMPLATE, talk, tiny_model, tiny_tokenizer
from training_jobs.batches import collate
from training_jobs.data import examples_read
from training_jobs.examples import HELD_OUT_MAX, Example
from training_jobs.memory_prompt import MOST_TARGETS, HeldOut, MemoryPrompt, prompted_nlls
from training_jobs.score import target_nll

#: The tiny tokenizer has a token a byte, so that lengths are easily told: a quarter of this is 100 bytes.
MAX_TOKENS = 400


@pytest.fixture(scope="module")
def encoder() -> ChatEncoder:
    return ChatEncoder(tiny_tokenizer())


def memory_of(encoder: ChatEncoder, *talks) -> MemoryPrompt:
    memory = MemoryPrompt()
    for said in talks:
        memory.quote(talk(*said), encoder, max_tokens=MAX_TOKENS)
    return memory


def pair(question: str, answer: str) -> tuple[tuple[str, str], ...]:
    return ("user", question), ("assistant", answer)


def test_as_much_as_fits_is_quoted_and_what_is_too_long_is_passed_over(encoder):
    short = [pair(f"q{index}", f"a{index}") for index in range(9)]
    memory = memory_of(encoder, pair("long", "x" * 200), *short)
    assert memory.quotes == [f"user: q{index}\nassistant: a{index}" for index in range(4)]
    assert memory.tokens == 4 * len("\n\nuser: q0\nassistant: a0") <= MAX_TOKENS // 4


def test_it_does_not_try_for_ever(encoder, monkeypatch):
    tried = []
    count = ChatEncoder.count
    monkeypatch.setattr(
        ChatEncoder, "count", lambda *args, **options: tried.append(1) or count(*args, **options)
    )
    memory_of(encoder, *[pair("long", "x" * 200)] * 50, pair("q", "a"))
    assert len(tried) == 20


def test_the_data_gives_both_sides(encoder):
    rows = [
        {
            "id": str(index),
            "messages": [{"role": role, "content": said} for role, said in pair(f"q{index}", "a")],
        }
        | ({"split": "validation"} if index % 2 else {})
        for index in range(2 * MOST_TARGETS + 4)
    ]
    examples = examples_read(map(json.dumps, rows), encoder, max_tokens=MAX_TOKENS)
    assert examples.memory.quotes[0] == "user: q0\nassistant: a"
    assert not any("q1\n" in quote for quote in examples.memory.quotes), "nothing of what it is judged by"
    prompted = examples.memory.prompted(encoder, max_tokens=MAX_TOKENS)
    assert len(prompted) == MOST_TARGETS < len(examples.held_out)
    for each in prompted:
        example = examples.held_out[each.number]
        assert each.target == example.tokens[example.prompt_length :].tolist()
    assert list(examples.held_out.conversations)[:2] == [1, 3], "numbers of their conversations"


def test_it_is_judged_by_as_many_conversations_as_can_be(encoder):
    """Not by all answers of the first few, which are alike."""

    def row(index: int) -> str:
        said = [turn for number in range(8) for turn in pair(f"q{number}", f"a{index}")]
        messages = [{"role": role, "content": content} for role, content in said]
        return json.dumps({"id": str(index), "messages": messages, "split": "validation"})

    train = {"id": "t", "messages": [{"role": role, "content": said} for role, said in pair("q", "a")]}
    examples = examples_read([json.dumps(train), *map(row, range(10))], encoder, max_tokens=MAX_TOKENS)
    numbers = [each.number for each in examples.memory.prompted(encoder, max_tokens=MAX_TOKENS)]
    assert numbers == sorted([*range(0, 80, 8), *range(1, 48, 8)]), "ten first answers and six second ones"
    many = examples_read([json.dumps(train), *map(row, range(40))], encoder, max_tokens=MAX_TOKENS)
    assert max(each.number for each in many.memory.held_out) < HELD_OUT_MAX, "only those are scored"


def test_a_system_message_of_its_own_stays(encoder):
    memory = memory_of(encoder, pair("q", "a"))
    memory.judge_by(HeldOut(0, 0, talk(("system", "Rhyme."), *pair("hm?", "hum!"))))
    [prompted] = memory.prompted(encoder, max_tokens=MAX_TOKENS)
    text = tiny_tokenizer().decode(prompted.prompt)
    assert text.count("<|im_start|>system") == 1
    assert "assistant: a\n\nRhyme.<|im_end|>" in text


def test_a_template_without_system_messages_has_it_in_the_users(encoder):
    tokenizer = tiny_tokenizer()
    refuses = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    tokenizer.chat_template = refuses + TEMPLATE
    memory = memory_of(encoder, pair("q", "a"))
    memory.judge_by(HeldOut(0, 0, talk(*pair("hm?", "hum!"))))
    [prompted] = memory.prompted(ChatEncoder(tokenizer), max_tokens=MAX_TOKENS)
    assert "<|im_start|>user\nAnswer as the assistant" in tokenizer.decode(prompted.prompt)


def test_what_no_longer_fits_behind_it_is_not_compared(encoder):
    memory = memory_of(encoder, pair("q", "a"))
    memory.judge_by(HeldOut(0, 0, talk(*pair("x" * 300, "no"))))
    memory.judge_by(HeldOut(0, 1, talk(*pair("hm?", "hum!"))))
    assert [each.number for each in memory.prompted(encoder, max_tokens=MAX_TOKENS)] == [1]
    assert MemoryPrompt(held_out=memory.held_out).prompted(encoder, max_tokens=MAX_TOKENS) == []


@torch.no_grad()
def test_the_shared_beginning_changes_nothing(encoder):
    memory = memory_of(encoder, pair("q", "a"))
    for number, question in enumerate(("hm?", "who are you?", "w")):
        memory.judge_by(HeldOut(0, number, talk(*pair(question, "hum!"))))
    prompted = memory.prompted(encoder, max_tokens=MAX_TOKENS)
    model, calls = tiny_model(), []
    nlls = prompted_nlls(model, prompted, before_each=lambda: calls.append(1))
    for each, nll in zip(prompted, nlls, strict=True):
        row = Example(np.array([*each.prompt, *each.target]), len(each.prompt))
        assert nll == pytest.approx(target_nll(model, collate([row], pad=2)).item(), abs=1e-4)
    assert prompted_nlls(model, prompted[:1], before_each=list) == pytest.approx(nlls[:1], abs=1e-4)
    assert len(calls) == 4
