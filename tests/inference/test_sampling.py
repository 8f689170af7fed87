"""What chooses the next token and what ends an answer leaves the logits as they are: those of two phases.

Prefill-only, all-position and base requests are in one batch each time, and asked for different things.
"""

import re

import pytest
import torch

from tests.inference.engine import BLOCK, Engine, Question
from tests.inference.reference import Reference, Scores

pytestmark = pytest.mark.engine

PROMPT = list(range(700, 700 + BLOCK + 1))


@pytest.fixture
def everybody(adapters):
    """The base, LoRA_P, LoRA, DiReFT_P and LoReFT_P."""
    return [None, *(adapters[number] for number in (0, 2, 3, 6))]


def test_a_grammar_only_takes_tokens_away(engine: Engine, reference: Reference, everybody):
    """The likeliest token that the grammar allows, to the end, which is a model's own."""
    from vllm.sampling_params import StructuredOutputsParams

    pattern = "(yes|no), [a-z]{5,20} [0-9]{3}!"
    sampling = {"structured_outputs": StructuredOutputsParams(regex=pattern), "ignore_eos": False}
    questions = [Question(PROMPT, adapter, sampling=sampling) for adapter in everybody]
    free = Question(PROMPT, everybody[1])
    outputs = engine.ask([*questions, free])
    compared = 0
    for question, output in zip(questions, outputs, strict=False):
        assert re.fullmatch(pattern, output.outputs[0].text)
        assert question.finish == "stop"
        logits = reference.two_phase(PROMPT, question.answer, question.adapter).logits
        allowed = allowed_by(engine, pattern, question.answer, logits.shape[1])
        masked = Scores(logits.masked_fill(~allowed, -torch.inf))
        assert masked.agrees(question.answer)
        compared += len(masked.sure)
    assert compared >= 0.8 * sum(len(question.answer) for question in questions)
    assert len({tuple(question.answer) for question in questions}) > 3, "the grammar alone decides"
    assert reference.two_phase(PROMPT, free.answer, free.adapter).agrees(free.answer)


def allowed_by(engine: Engine, pattern: str, answer: list[int], vocabulary: int) -> torch.Tensor:
    """[len(answer), vocabulary] bool: what may follow at each place, by xgrammar itself."""
    import xgrammar

    tokenizer = xgrammar.TokenizerInfo.from_huggingface(engine.llm.get_tokenizer(), vocab_size=vocabulary)
    matcher = xgrammar.GrammarMatcher(xgrammar.GrammarCompiler(tokenizer).compile_regex(pattern))
    bits = xgrammar.allocate_token_bitmask(len(answer), vocabulary)
    for place, token in enumerate(answer):
        matcher.fill_next_token_bitmask(bits, place)
        assert matcher.accept_token(token)
    words = bits[:, :, None] >> torch.arange(32, dtype=torch.int32) & 1
    return words.flatten(1)[:, :vocabulary].bool()


def test_an_answer_ends_where_it_is_told_to(engine: Engine, reference: Reference, everybody):
    """By a token, by a text, by the model's own last token (which is made likelier); the others go on."""
    tokenizer = engine.llm.get_tokenizer()
    eos = tokenizer.eos_token_id
    whole = [Question(PROMPT, adapter, 16) for adapter in everybody]
    engine.ask(whole)
    questions, expected = [], []
    for question in whole:
        said, adapter = question.answer, question.adapter
        scores = reference.two_phase(PROMPT, said, adapter)
        assert scores.agrees(said)
        best = scores.logits.max(-1).values
        bias = float(best[12] - scores.logits[12, eos]) + 1
        last = (scores.logits[:, eos] + bias > best).tolist().index(True)
        text = tokenizer.decode(said[9:12])
        told = next(count for count in range(17) if text in tokenizer.decode(said[:count]))
        for sampling, answer in (
            ({"stop_token_ids": [said[9]]}, said[: said.index(said[9]) + 1]),
            ({"stop": [text]}, said[:told]),
            ({"logit_bias": {eos: bias}, "ignore_eos": False}, [*said[:last], eos]),
            ({}, said),
        ):
            questions.append(Question(PROMPT, adapter, 16, sampling=sampling))
            expected.append(answer)
    engine.ask(questions)
    for question, answer in zip(questions, expected, strict=True):
        assert question.answer == answer, question.sampling
        assert question.finish == ("stop" if question.sampling else "length"), question.sampling


def test_several_answers_to_one_question(engine: Engine, reference: Reference, everybody):
    """n > 1 shares the prompt's blocks: every token of every answer is as likely as two phases say."""
    questions = [
        Question(PROMPT, adapter, 16, sampling={"n": 3, "temperature": 1, "seed": 5, "logprobs": 0})
        for adapter in everybody
    ]
    for question, output in zip(questions, engine.ask(questions), strict=True):
        assert len({tuple(answer.token_ids) for answer in output.outputs}) == 3
        for answer in output.outputs:
            logits = reference.two_phase(PROMPT, answer.token_ids, question.adapter).logits
            chosen = torch.tensor(answer.token_ids)[:, None]
            expected = logits.log_softmax(-1).gather(1, chosen)[:, 0]
            said = torch.tensor(
                [at[token].logprob for at, token in zip(answer.logprobs, answer.token_ids, strict=True)]
            )
            torch.testing.assert_close(said, expected, atol=5e-3, rtol=0)
