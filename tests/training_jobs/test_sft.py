"""A training learns, ends early when asked, and continues as if it had never stopped."""

import math

import numpy as np
import pytest
import torch
from trl import SFTConfig, SFTTrainer

from tests.training_jobs.adapters import PREFILL, RECIPES, disturbed, name
from tests.training_jobs.tiny import tiny_model, tiny_tokenizer
from tests.training_jobs.trainings import Recorder, ResumedRecorder, examples, run_of, train
from training_jobs.attach.adapter import adapter_attach, adapter_detach
from training_jobs.attach.prompt_mask import IGNORED
from training_jobs.batches import BatchOrder, collate
from training_jobs.errors import OurFault, Stopped, UserFault
from training_jobs.examples import Examples
from training_jobs.score import example_nlls, target_nll

pytestmark = pytest.mark.slow  # it trains


@pytest.mark.parametrize("recipe", [*PREFILL, RECIPES[1]], ids=name)
def test_training_learns_and_reports(recipe, tmp_path):
    watcher = Recorder()
    trained, _ = train(tmp_path, recipe, watcher)
    assert len(trained.losses) == 6  # 10 examples in batches of 4: three steps an epoch
    assert trained.losses == watcher.losses
    assert trained.losses[-1] < trained.losses[0] - 0.1
    assert trained.held_out_after < trained.held_out_before - 0.1
    assert [step for step, _ in watcher.held_out_losses] == [3, 6]
    data = examples()
    assert trained.trained_tokens == 2 * data.train.target_tokens
    assert trained.held_out_tokens == data.held_out.target_tokens


@pytest.mark.parametrize("recipe", PREFILL[:2], ids=name)
def test_resumed_from_a_checkpoint_every_loss_and_weight_is_the_same(recipe, tmp_path):
    whole, tensors = train(tmp_path, recipe)
    watcher = Recorder(stop_at=4)
    with pytest.raises(Stopped):
        train(tmp_path, recipe, watcher)
    assert [step for step, _ in watcher.checkpoints] == [3, 4]
    for _, path in watcher.checkpoints if recipe.method == "direft" else watcher.checkpoints[:1]:
        resumed, again = train(tmp_path, recipe, ResumedRecorder(), checkpoint=path)
        assert resumed.losses == whole.losses
        assert resumed.held_out_before == whole.held_out_before
        assert resumed.held_out_after == whole.held_out_after
        for key, tensor in tensors.items():
            torch.testing.assert_close(again[key], tensor, atol=0, rtol=0)


def test_the_same_seed_gives_the_same_losses_and_another_does_not(tmp_path):
    first, second = (train(tmp_path, PREFILL[0])[0].losses for _ in range(2))
    assert first == second
    orders = [list(BatchOrder(10, batch_size=4, epochs=2, seed=seed)) for seed in (1, 2)]
    assert orders[0] != orders[1]


def test_every_example_is_seen_once_an_epoch():
    order = BatchOrder(10, batch_size=4, epochs=3, seed=5)
    batches = list(order)
    assert [len(batch) for batch in batches] == [4, 4, 2] * 3
    for epoch in range(3):
        assert sorted(index for batch in batches[3 * epoch : 3 * epoch + 3] for index in batch) == list(
            range(10)
        )
    assert batches[:3] != batches[3:6]
    assert (list(order.after(4)), len(order.after(4))) == (batches[4:], 5)


def test_stopping_before_the_first_step_leaves_no_checkpoint(tmp_path):
    watcher = Recorder(stop_at=0)
    with pytest.raises(Stopped):
        train(tmp_path, PREFILL[1], watcher)
    assert (watcher.losses, watcher.checkpoints) == ([], [])


def test_scoring_stops_when_asked_before_any_batch(tmp_path):
    """Held-out scoring may take longer than training: a stop in the middle of it keeps what was trained."""

    class AtTheEnd(Recorder):
        asked = 0

        def should_stop(self):
            self.asked += len(self.losses) == 6
            return self.asked == 2  # the first time is after the last step

    watcher = AtTheEnd()
    with pytest.raises(Stopped):
        train(tmp_path, PREFILL[1], watcher)
    assert watcher.checkpoints[-1][0] == 6
    trained, _ = train(tmp_path, PREFILL[1], ResumedRecorder(), checkpoint=watcher.checkpoints[-1][1])
    assert trained.losses == watcher.losses


def test_a_checkpoint_of_another_adapter_or_none_is_refused(tmp_path):
    watcher = Recorder(stop_at=3)
    with pytest.raises(Stopped):
        train(tmp_path, PREFILL[1], watcher)
    with pytest.raises(OurFault, match="checkpoint"):
        train(tmp_path, PREFILL[0], checkpoint=watcher.checkpoints[-1][1])
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"\x80\x04not a checkpoint")
    with pytest.raises(OurFault, match="checkpoint"):
        train(tmp_path, PREFILL[1], checkpoint=garbage)


def test_a_loss_that_is_no_number_ends_the_training(tmp_path):
    model = adapter_attach(tiny_model(), PREFILL[1], seed=1)
    with torch.no_grad():
        next(p for p in model.parameters() if p.requires_grad).fill_(float("nan"))
    with pytest.raises(UserFault, match="lower learning rate"):
        run_of(model, tmp_path, examples=Examples(train=examples().train)).train()


def test_a_held_out_loss_that_is_no_number_ends_the_training(tmp_path, monkeypatch):
    losses = iter([[1.0], [float("nan")]])
    monkeypatch.setattr("training_jobs.sft.example_nlls", lambda *args, **options: next(losses))
    watcher = Recorder()
    with pytest.raises(UserFault, match="step 3: the validation loss") as fault:
        train(tmp_path, PREFILL[1], watcher)
    assert fault.value.code == "training_diverged"
    assert watcher.held_out_losses == []


def test_a_base_without_a_loss_is_not_the_users_fault(tmp_path, monkeypatch):
    monkeypatch.setattr("training_jobs.sft.example_nlls", lambda *args, **options: [1.0, float("inf")])
    with pytest.raises(OurFault) as fault:
        train(tmp_path, PREFILL[1])
    assert fault.value.code == "base_unfit"


def test_the_base_serves_the_next_job_as_if_new(tmp_path):
    base = tiny_model()
    for recipe in (PREFILL[0], PREFILL[1]):
        model = adapter_attach(base, recipe, seed=1)
        trained = run_of(model, tmp_path).train()
        assert adapter_detach(model) is base
    assert trained.losses == train(tmp_path, PREFILL[1])[0].losses
    assert "forward" not in base.__dict__


@pytest.mark.parametrize("recipe", RECIPES, ids=name)
@torch.no_grad()
def test_the_loss_is_the_models_own_over_targets_alone(recipe):
    model = disturbed(tiny_model(), recipe)
    rows = list(examples().train)[:3]
    own = []
    for row in rows:
        ids = torch.tensor(row.tokens[np.newaxis], dtype=torch.int64)
        labels = ids.clone()
        labels[:, : row.prompt_length] = IGNORED
        own.append(model(input_ids=ids, labels=labels).loss.item() * row.target_length)
    assert target_nll(model, collate(rows, pad=2)).item() == pytest.approx(sum(own), rel=1e-5)
    assert len({len(row.tokens) for row in rows}) == 3, "they are scored in another order than theirs"
    assert example_nlls(model, rows[::-1], batch_size=2, pad=2) == pytest.approx(own[::-1], rel=1e-5)


def test_trls_own_trainer_works_unmodified_and_gives_the_same_first_loss(tmp_path):
    from datasets import Dataset

    rows = list(examples().train)[:4]
    tokens = [row.tokens.tolist() for row in rows]
    labels = [
        [IGNORED] * row.prompt_length + ids[row.prompt_length :]
        for row, ids in zip(rows, tokens, strict=True)
    ]
    data = Dataset.from_dict({"input_ids": tokens, "labels": labels})
    for recipe in PREFILL[:2]:
        model = disturbed(tiny_model(), recipe)
        expected = target_nll(model, collate(rows, pad=2)).item() / sum(row.target_length for row in rows)
        arguments = SFTConfig(
            output_dir=str(tmp_path),
            max_steps=1,
            per_device_train_batch_size=4,
            bf16=False,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            gradient_checkpointing=True,
        )
        trainer = SFTTrainer(
            model=model, args=arguments, train_dataset=data, processing_class=tiny_tokenizer()
        )
        assert math.isclose(trainer.train().training_loss, expected, rel_tol=1e-4)
