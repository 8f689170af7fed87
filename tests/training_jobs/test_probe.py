"""What the gate asks the engine, with the trainer's own answers: those that generate() gives, scored as in training."""

import numpy as np
import pytest
import torch

from adapters_store.chat_template import ChatEncoder
from tests.training_jobs.adapters import PREFILL, RECIPES, disturbed, name
from tests.training_jobs.tiny import talk, tiny_model, tiny_tokenizer
from tests.training_jobs.trainings import examples
from training_jobs.batches import collate
from training_jobs.examples import Example, Examples
from training_jobs.messages import PROBE_PROMPTS, PROBE_TOKENS
from training_jobs.probe import probe_make
from training_jobs.score import target_logits

pytestmark = pytest.mark.slow  # it trains

PAD = 2


def generated(model, prompt: tuple[int, ...]) -> list[int]:
    """One prompt, alone, by transformers' own generate()."""
    ids = torch.tensor([prompt])
    said = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=PROBE_TOKENS,
        do_sample=False,
    )
    return said[0, len(prompt) :].tolist()


@pytest.mark.parametrize("recipe", [*PREFILL, RECIPES[1]], ids=name)
def test_the_answers_are_those_of_generate_without_the_adapter_and_with_it(recipe):
    base = tiny_model()
    base.generation_config.eos_token_id = None  # an end of the turn ends nothing
    plain = tiny_model()
    plain.generation_config.eos_token_id = None
    model = disturbed(base, recipe)
    probe = probe_make(model, examples(), max_tokens=500, pad=PAD)
    assert len(probe.questions) == PROBE_PROMPTS
    assert probe.tokens == PROBE_TOKENS
    for question in probe.questions:
        assert list(question.base.tokens) == generated(plain, question.prompt)
        assert list(question.adapted.tokens) == generated(model, question.prompt)
        assert question.base.tokens != question.adapted.tokens, "the adapter is seen to act"


@torch.no_grad()
def test_each_token_has_its_log_probability_and_the_runner_ups():
    model = disturbed(tiny_model(), RECIPES[2])
    for question in probe_make(model, examples(), max_tokens=500, pad=PAD).questions:
        said = question.adapted
        row = Example(np.array([*question.prompt, *said.tokens]), len(question.prompt))
        best = target_logits(model, collate([row], pad=PAD))[0].log_softmax(-1).topk(2)
        assert best.indices[:, 0].tolist() == list(said.tokens)
        assert said.logprobs == pytest.approx(best.values[:, 0].tolist(), abs=1e-4)
        assert said.runners_up == pytest.approx(best.values[:, 1].tolist(), abs=1e-4)


def test_held_out_prompts_if_there_are_any_each_once():
    model = disturbed(tiny_model(), RECIPES[2])
    encoder, data = ChatEncoder(tiny_tokenizer()), Examples()
    for split, question in ((data.train, "trained"), (data.held_out, "held")):
        for answer in ("a", "b"):
            turns = talk(("user", question), ("assistant", answer))
            split.add(*encoder.prompt_and_target(turns, max_tokens=500), conversation=0)
    for rows, expected in ((data, "held"), (Examples(train=data.train), "trained")):
        [question] = probe_make(model, rows, max_tokens=500, pad=PAD).questions
        assert expected in tiny_tokenizer().decode(question.prompt)


def test_an_answer_ends_where_the_model_does():
    data = examples()
    longest = sorted(row.prompt_length for row in data.held_out)[PROBE_PROMPTS - 1]
    probe = probe_make(disturbed(tiny_model(), RECIPES[2]), data, max_tokens=longest + 1, pad=PAD)
    assert probe.tokens == 1
