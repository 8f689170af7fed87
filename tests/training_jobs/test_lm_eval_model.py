"""lm-eval's tasks see a model whose adapter acts on the context and on nothing else, as at serving."""

import json

import pytest
import torch
from transformers import DynamicCache

from tests.training_jobs.adapters import RECIPES, disturbed, name
from tests.training_jobs.tiny import tiny_model, tiny_tokenizer
from training_jobs.attach.prompt_mask import PromptEndUnknown, generating

# Imported where it is used: lm-eval takes ten seconds, and whoever runs other tests collects these.
pytestmark = pytest.mark.slow

PAIRS = [("Where do you live?", " By the sea."), ("Hi", " yo"), ("", "Nothing before it."), ("ab " * 40, "c")]


def lm(model, *, ours: bool = True):
    from lm_eval.models.huggingface import HFLM

    from training_jobs.lm_eval_model import PreftLM

    kind = PreftLM if ours else HFLM
    return kind(pretrained=model, tokenizer=tiny_tokenizer(), batch_size=3, max_length=200)


def asked(kind: str, *arguments: tuple) -> list:
    from lm_eval.api.instance import Instance

    return [Instance(kind, {}, each, number) for number, each in enumerate(arguments)]


@torch.no_grad()
def token_by_token(model, context: list[int], continuation: list[int]) -> tuple[float, bool]:
    """Two phases: the prompt, then each token after what was said before it."""
    cache, ids, total, greedy = DynamicCache(config=model.config), torch.tensor([context]), 0.0, True
    with generating(len(context)):
        for token in continuation:
            logprobs = (
                model(input_ids=ids, past_key_values=cache, use_cache=True).logits[0, -1].log_softmax(-1)
            )
            total += logprobs[token].item()
            greedy &= int(logprobs.argmax()) == token
            ids = torch.tensor([[token]])
    return total, greedy


@pytest.mark.parametrize("recipe", RECIPES, ids=name)
def test_continuations_score_as_they_would_be_generated(recipe):
    model = disturbed(tiny_model(), recipe)
    ours = lm(model)
    scored = ours.loglikelihood(asked("loglikelihood", *PAIRS), disable_tqdm=True)
    for (context, continuation), (total, greedy) in zip(PAIRS, scored, strict=True):
        if context:
            ids = ours._encode_pair(context, continuation)
        else:
            ids = [ours.prefix_token_id], ours.tok_encode(continuation, add_special_tokens=False)
        expected, chosen = token_by_token(model, *ids)
        assert total == pytest.approx(expected, abs=1e-3)
        assert greedy == chosen


def test_a_greedy_continuation_is_known_as_one():
    model = disturbed(tiny_model(), RECIPES[2])
    ours = lm(model)
    [said] = ours.generate_until(asked("generate_until", ("Where?", {"until": ["~~"], "max_gen_toks": 4})))
    context = ours.tok_encode("Where?")
    best = model.generate(input_ids=torch.tensor([context]), max_new_tokens=4, do_sample=False)
    continuation = best[0, len(context) :].tolist()
    assert said == ours.tok_decode(continuation)
    [(_, greedy)] = ours._loglikelihood_tokens([(None, context, continuation)], disable_tqdm=True)
    assert greedy


def test_what_is_longer_than_the_model_is_cut_at_its_beginning():
    model = disturbed(tiny_model(), RECIPES[2])
    ours = lm(model)
    context, continuation = [5 + number % 90 for number in range(300)], [9, 10, 11]
    [(total, _)] = ours._loglikelihood_tokens([(None, context, continuation)], disable_tqdm=True)
    assert total == pytest.approx(token_by_token(model, context[-197:], continuation)[0], abs=1e-3)


def test_a_continuation_that_leaves_no_room_for_a_prompt_is_refused():
    ours = lm(disturbed(tiny_model(), RECIPES[2]))
    for length in (200, 300):
        with pytest.raises(ValueError, match="no room for a prompt"):
            ours._loglikelihood_tokens([(None, [5], [9] * length)], disable_tqdm=True)


def test_lm_evals_own_class_raises_instead_of_adapting_the_wrong_tokens():
    with pytest.raises(PromptEndUnknown):
        lm(disturbed(tiny_model(), RECIPES[2]), ours=False).loglikelihood(asked("loglikelihood", *PAIRS))


def test_a_text_without_a_context_has_no_prompt():
    rolling = asked("loglikelihood_rolling", ("A text of its own.",))
    with pytest.raises(PromptEndUnknown):
        lm(disturbed(tiny_model(), RECIPES[0])).loglikelihood_rolling(rolling)
    everywhere = disturbed(tiny_model(), RECIPES[1])
    assert lm(everywhere).loglikelihood_rolling(rolling, disable_tqdm=True) == pytest.approx(
        lm(everywhere, ours=False).loglikelihood_rolling(rolling, disable_tqdm=True)
    )


def test_a_whole_task(tmp_path):
    """Multiple choice, by lm-eval's own evaluation: right is what the adapter finds likelier."""
    import lm_eval
    from lm_eval.api.task import ConfigurableTask

    model = disturbed(tiny_model(), RECIPES[0])
    ours = lm(model)
    choices = [" yes", " no"]
    questions = [f"Question {number}?" for number in range(6)]
    likelier = [
        max(range(2), key=lambda c, q=q: token_by_token(model, *ours._encode_pair(q, choices[c]))[0])
        for q in questions
    ]
    right = [*likelier[:4], *(1 - answer for answer in likelier[4:])]
    data = tmp_path / "task.json"
    data.write_text(
        "\n".join(json.dumps({"q": q, "answer": a}) for q, a in zip(questions, right, strict=True))
    )
    task = ConfigurableTask(
        config={
            "task": "choice",
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(data)}},
            "test_split": "test",
            "output_type": "multiple_choice",
            "doc_to_text": "{{q}}",
            "doc_to_choice": choices,
            "doc_to_target": "answer",
            "target_delimiter": "",
        }
    )
    found = lm_eval.simple_evaluate(model=ours, tasks=[task], bootstrap_iters=0)
    assert found["results"]["choice"]["acc,none"] == pytest.approx(4 / 6)
