"""The adapter is the one that held-out examples find best, and training ends when more of it is of no use."""

import pytest
import torch

from tests.training_jobs.adapters import PREFILL, name
from tests.training_jobs.tiny import tiny_model
from tests.training_jobs.trainings import Recorder, ResumedRecorder, examples, train
from training_jobs import sft
from training_jobs.attach.adapter import adapter_attach, tensors_set
from training_jobs.best_epoch import BestEpoch, patience_of, trained_parameters
from training_jobs.errors import Stopped
from training_jobs.messages import Hyperparameters
from training_jobs.score import example_nlls

pytestmark = pytest.mark.slow  # it trains

#: Five steps an epoch, and held-out rows that answer otherwise: better at first, worse the longer it trains.
UNLIKE = {
    "hyperparameters": Hyperparameters(n_epochs=8, batch_size=2, learning_rate=1e-2, seed=7),
    "examples": examples(held_out_says="zz"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted training on rows that the held-out ones are unlike, for each method that the tests take."""
    found = {}
    for recipe in PREFILL[:2]:
        watcher = Recorder()
        folder = tmp_path_factory.mktemp(recipe.method)
        found[recipe.method] = watcher, *train(folder, recipe, watcher, **UNLIKE)
    return found


@pytest.mark.parametrize("recipe", PREFILL[:2], ids=name)
def test_the_weights_are_the_best_epochs_and_training_ends_early(recipe, whole):
    watcher, trained, tensors = whole[recipe.method]
    losses = [loss for _, loss in watcher.held_out_losses]
    best = losses.index(min(losses)) + 1
    assert len(losses) == best + 2 < 8, "the rows are such that it gets worse"
    assert (trained.best_step, trained.stopped_at) == (5 * best, 5 * best + 10)
    assert watcher.keeps == [(trained.best_step, trained.stopped_at, 40)]
    assert len(trained.losses) == trained.stopped_at
    assert trained.held_out_after == min(losses)
    attached = adapter_attach(tiny_model(), recipe, seed=1)
    tensors_set(attached, tensors)
    held_out = UNLIKE["examples"].held_out
    rescored = example_nlls(attached, list(held_out), batch_size=4, pad=2)
    assert rescored == trained.nlls_after
    assert sum(rescored) / held_out.target_tokens == trained.held_out_after


def test_every_epoch_is_scored_once(tmp_path, monkeypatch):
    scored = []
    monkeypatch.setattr(
        sft, "example_nlls", lambda *args, **options: scored.append(1) or example_nlls(*args, **options)
    )
    watcher = Recorder()
    trained, _ = train(tmp_path, PREFILL[1], watcher)
    assert [step for step, _ in watcher.held_out_losses] == [3, 6]
    assert len(scored) == 3, "before, and after each of two epochs"
    assert (trained.best_step, trained.stopped_at, watcher.keeps) == (6, None, [])


def test_without_held_out_examples_the_last_weights_are_kept(tmp_path):
    alone = examples()
    alone.held_out = type(alone.held_out)()
    watcher = Recorder()
    trained, tensors = train(tmp_path, PREFILL[1], watcher, examples=alone)
    assert (trained.best_step, trained.stopped_at, trained.held_out_after) == (None, None, None)
    assert (watcher.held_out_losses, watcher.keeps) == ([], [])
    _, judged = train(tmp_path, PREFILL[1])
    for key, tensor in tensors.items():
        torch.testing.assert_close(judged[key], tensor, atol=0, rtol=0)


def test_resumed_at_any_point_it_keeps_the_same_weights(whole, tmp_path):
    """Before the best epoch, in the middle of its scoring, after it, and in the last scoring."""
    recipe = PREFILL[1]
    watcher, expected, tensors = whole[recipe.method]

    class InTheScoring(Recorder):
        """Stops before the batches of the scoring after step `stop_at`, and nowhere else."""

        def should_stop(self):
            return len(self.losses) == self.stop_at

    best, last = expected.best_step, expected.stopped_at
    stops = [
        Recorder(stop_at=2),
        InTheScoring(stop_at=best),
        Recorder(stop_at=best + 1),
        InTheScoring(stop_at=last),
    ]
    for stopped in stops:
        folder = tmp_path / f"{stopped.stop_at}"
        folder.mkdir()
        with pytest.raises(Stopped):
            train(folder, recipe, stopped, **UNLIKE)
        step, checkpoint = stopped.checkpoints[-1]
        assert step == stopped.stop_at
        resumed = ResumedRecorder()
        trained, again = train(folder, recipe, resumed, checkpoint=checkpoint, **UNLIKE)
        assert (trained.losses, trained.best_step, trained.stopped_at, trained.held_out_after) == (
            expected.losses,
            expected.best_step,
            expected.stopped_at,
            expected.held_out_after,
        )
        assert (trained.nlls_before, trained.nlls_after) == (expected.nlls_before, expected.nlls_after)
        assert stopped.held_out_losses + resumed.held_out_losses == watcher.held_out_losses
        assert resumed.keeps == watcher.keeps
        for key, tensor in tensors.items():
            torch.testing.assert_close(again[key], tensor, atol=0, rtol=0)


def test_patience_and_ties():
    model = adapter_attach(tiny_model(), PREFILL[1], seed=1)
    best = BestEpoch()
    assert not best.hopeless(patience=2)
    for mark, (loss, epoch, hopeless) in enumerate(
        [(3.0, 1, False), (3.5, 1, False), (2.0, 3, False), (2.0, 3, False), (2.5, 3, True)]
    ):
        with torch.no_grad():
            next(iter(trained_parameters(model).values())).fill_(mark)
        best.judge(loss, [loss], trained_parameters(model))
        assert (best.epoch, best.hopeless(patience=2)) == (epoch, hopeless)
    assert [patience_of(steps) for steps in (1, 3, 5, 100)] == [10, 4, 2, 2], "ten steps, two epochs"
    best.restore(trained_parameters(model))
    assert best.nlls == [2.0]
    assert (next(iter(trained_parameters(model).values())) == 2).all(), "the weights of the third epoch"
