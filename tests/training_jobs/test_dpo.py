"""Preference pairs: the same masks, the loss of the formula, a model that prefers what it should, and no surprises."""

import json
import math

import pytest
import torch

from adapters_store.attached import tensors_get
from adapters_store.chat_template import ChatEncoder
from tests.training_jobs.adapters import PREFILL, RECIPES, disturbed, name
from tests.training_jobs.test_memory import assert_alike, refuses, rows_of
from tests.training_jobs.tiny import tiny_model, tiny_tokenizer
from tests.training_jobs.trainings import PREFERENCES, Recorder, ResumedRecorder, pairs, run_of, train
from training_jobs.attach.adapter import adapter_attach, adapter_detach
from training_jobs.attach.prompt_mask import mask_from_labels
from training_jobs.batches import collate
from training_jobs.comparison import compare_preferences
from training_jobs.data import examples_read
from training_jobs.errors import OurFault, Stopped

pytestmark = pytest.mark.slow  # it trains

ASKED = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hello?"}]
PAIR = {
    "id": "1",
    "messages": [*ASKED, {"role": "assistant", "content": "Hi!"}],
    "rejected": "What do you want?",
}


def read(*rows, type="dpo", max_tokens=500):
    encoder = ChatEncoder(tiny_tokenizer())
    return examples_read(map(json.dumps, rows), encoder, type=type, max_tokens=max_tokens)


def answered(text):
    return {"id": "1", "messages": [*ASKED, {"role": "assistant", "content": text}]}


def options(**more):
    return {"examples": pairs(), "hyperparameters": PREFERENCES, **more}


def test_both_answers_have_the_masks_of_supervised_training():
    found, supervised = read(PAIR), read(answered("Hi!"), answered(PAIR["rejected"]), type="supervised")
    assert found.count == (1, 0)
    for mine, theirs in zip(found.train, supervised.train, strict=True):
        assert mine.tokens.tolist() == theirs.tokens.tolist()
        assert mine.prompt_length == theirs.prompt_length
    batches = [collate(list(examples.train), pad=2) for examples in (found, supervised)]
    mine, theirs = (mask_from_labels(batch["labels"], batch["position_ids"]) for batch in batches)
    assert torch.equal(mine, theirs)
    adapted = (mine & (batches[0]["attention_mask"] == 1)).sum(dim=1).tolist()
    assert adapted == [found.train[0].prompt_length] * 2
    assert found.train[0].target_length != found.train[1].target_length


def test_a_pair_of_which_one_answer_is_too_long_is_left_out_whole():
    held_out = {**PAIR, "id": "3", "split": "validation"}
    found = read(PAIR, {**PAIR, "id": "2", "rejected": "no" * 200}, held_out, max_tokens=200)
    assert found.count == (1, 1)
    assert (found.left_out["too_long"].count, found.left_out["too_long"].first) == (1, ["2"])
    assert found.told().startswith("Training on 1 preference pairs")
    [complaint] = found.complaints(max_tokens=200)
    assert complaint.startswith("Left out 1 preference pairs that are longer than 200 tokens")
    assert found.train.conversations == found.train.conversations[:1] * 2


def test_a_pair_that_answers_nothing_is_left_out():
    found = read({**PAIR, "messages": [ASKED[0], PAIR["messages"][-1]]})
    assert (found.count, found.left_out["no_prompt"].first) == ((0, 0), ["1"])


@pytest.mark.parametrize(
    ("row", "type"),
    [
        (answered("Hi!"), "dpo"),
        (PAIR, "supervised"),
        ({**PAIR, "rejected": " "}, "dpo"),
        ({**PAIR, "messages": ASKED}, "dpo"),
    ],
)
def test_a_row_of_another_type_is_our_fault(row, type):
    with pytest.raises(OurFault) as fault:
        read(row, type=type)
    assert fault.value.code == "conversations_invalid"


@torch.no_grad()
def logprob(model, row):
    """Of a row's target, by one unpadded pass over everything."""
    ids = torch.tensor(row.tokens[None], dtype=torch.int64)
    labels = ids.clone()
    labels[:, : row.prompt_length] = -100
    logprobs = model(input_ids=ids, labels=labels).logits[0, :-1].log_softmax(dim=-1)
    return logprobs.gather(1, ids[0, 1:, None])[row.prompt_length - 1 :].sum()


@pytest.mark.parametrize("recipe", RECIPES, ids=name)
def test_the_loss_is_that_of_the_formula(recipe, tmp_path):
    run = run_of(disturbed(tiny_model(), recipe), tmp_path, **options())
    run.prepare()
    batch = run.collated([3, 0, 7])
    found = run.loss(run.model, batch) / run.weight(batch)
    base, losses = tiny_model(), []
    for number in (3, 0, 7):
        rows = [run.train_examples[2 * number], run.train_examples[2 * number + 1]]
        preferred, rejected = (logprob(run.model, row) - logprob(base, row) for row in rows)
        losses.append(-torch.log(torch.sigmoid(PREFERENCES.beta * (preferred - rejected))).item())
    assert found.item() == pytest.approx(sum(losses) / 3, rel=1e-4)
    assert abs(losses[0] - math.log(2)) > 1e-3, "an adapter that changes something"
    assert all(parameter.requires_grad for parameter in run.optimizer.param_groups[0]["params"])


@pytest.mark.parametrize("recipe", PREFILL[:2], ids=name)
def test_trls_own_trainer_works_unmodified_and_gives_the_same_first_loss(recipe, tmp_path):
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    tokenizer, data = tiny_tokenizer(), pairs(4)
    run = run_of(disturbed(tiny_model(), recipe), tmp_path, **options(examples=data))
    run.prepare()
    batch = run.collated(range(4))
    expected = (run.loss(run.model, batch) / 4).item()
    texts = []
    for number in range(4):
        rows = data.train[2 * number], data.train[2 * number + 1]
        says = [tokenizer.decode(row.tokens[row.prompt_length :]) for row in rows]
        prompt = tokenizer.decode(rows[0].tokens[: rows[0].prompt_length])
        texts.append({"prompt": prompt, "chosen": says[0], "rejected": says[1]})
    arguments = DPOConfig(
        output_dir=str(tmp_path),
        max_steps=1,
        per_device_train_batch_size=4,
        beta=PREFERENCES.beta,
        bf16=False,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer = DPOTrainer(
        model=disturbed(tiny_model(), recipe),
        ref_model=tiny_model(),
        args=arguments,
        train_dataset=Dataset.from_list(texts),
        processing_class=tokenizer,
    )
    assert trainer.train().training_loss == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("recipe", PREFILL, ids=name)
def test_it_learns_to_prefer_in_either_direction(recipe, tmp_path):
    started, longer = [], PREFERENCES.model_copy(update={"n_epochs": 6})
    for preferred, rejected in (("aye", "never"), ("never", "aye")):
        data = pairs(preferred=preferred, rejected=rejected)
        watcher = Recorder()
        trained, _ = train(tmp_path, recipe, watcher, **options(examples=data, hyperparameters=longer))
        assert trained.losses[0] == pytest.approx(math.log(2), abs=1e-5)
        assert trained.losses == watcher.losses
        assert trained.losses[-1] < 0.5
        assert trained.held_out_before == pytest.approx(math.log(2), abs=1e-5)
        assert trained.held_out_after == min(loss for _, loss in watcher.held_out_losses) < 0.5
        assert trained.trained_tokens == 6 * data.train.target_tokens
        tokens = [example.target_length for example in data.held_out]
        prompts = data.held_out.conversations
        found = compare_preferences(
            trained.nlls_after, trained.nlls_before, tokens=tokens, conversations=prompts, seed=0
        )
        assert (found.pairs, found.adapter_accuracy) == (4, 1.0)
        assert len(watcher.accuracies) == len(watcher.held_out_losses)
        assert watcher.accuracies[-1] == 1.0
        started.append(found.accuracy)
    assert min(started) < 1


@pytest.mark.parametrize("recipe", PREFILL[:2], ids=name)
def test_resumed_from_a_checkpoint_every_loss_and_weight_is_the_same(recipe, tmp_path):
    whole, tensors = train(tmp_path, recipe, **options())
    watcher = Recorder(stop_at=4)
    with pytest.raises(Stopped):
        train(tmp_path, recipe, watcher, **options())
    resumed, again = train(
        tmp_path, recipe, ResumedRecorder(), checkpoint=watcher.checkpoints[-1][1], **options()
    )
    assert resumed.losses == whole.losses
    assert (resumed.held_out_before, resumed.held_out_after) == (whole.held_out_before, whole.held_out_after)
    for key, tensor in tensors.items():
        torch.testing.assert_close(again[key], tensor, atol=0, rtol=0)


def test_with_memory_for_half_a_batch_it_learns_the_same_and_never_parts_a_pair(tmp_path):
    recipe = PREFILL[1]
    whole, tensors = train(tmp_path, recipe, **options())
    model, watcher, seen = adapter_attach(tiny_model(), recipe, seed=1), Recorder(), set()
    refuses(model, rows=4)
    model.register_forward_pre_hook(
        lambda module, args, given: seen.add(rows_of(given)) if module.training else None,
        with_kwargs=True,
    )
    trained = run_of(model, tmp_path, watcher, **options()).train()
    assert watcher.halvings == [0]
    assert seen == {2, 4}
    assert_alike(model, trained, whole, tensors)


def test_the_reference_of_a_training_that_has_begun_is_still_the_base(tmp_path):
    model = disturbed(tiny_model(), PREFILL[0])
    before = {key: tensor.clone() for key, tensor in tensors_get(model).items()}
    run = run_of(model, tmp_path, **options())
    run.prepare()
    base = tiny_model()
    expected = [-logprob(base, row).item() for row in run.train_examples]
    assert run.reference.tolist() == pytest.approx(expected, rel=1e-5)
    assert all(torch.equal(tensor, before[key]) for key, tensor in tensors_get(model).items())


def test_the_base_serves_the_next_job_as_if_new(tmp_path):
    base = tiny_model()
    model = adapter_attach(base, PREFILL[1], seed=1)
    run_of(model, tmp_path, **options()).train()
    assert adapter_detach(model) is base
    assert "forward" not in base.__dict__
    supervised = run_of(adapter_attach(base, PREFILL[1], seed=1), tmp_path).train()
    assert supervised.losses == train(tmp_path, PREFILL[1])[0].losses
