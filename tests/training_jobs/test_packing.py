"""Rows without padding, one after the other: the same losses and gradients, where that saves time."""

import numpy as np
import pytest
import torch

from tests.training_jobs.adapters import RECIPES, disturbed, name
from tests.training_jobs.test_memory import rows_of
from tests.training_jobs.tiny import tiny_model
from tests.training_jobs.trainings import PREFERENCES, pairs, train
from training_jobs import score
from training_jobs.batches import collate, packed, packing_pays
from training_jobs.examples import Example
from training_jobs.score import row_nlls

#: Prompt and target of each row.
LENGTHS = ((9, 4), (3, 1), (20, 7), (1, 2))


def batch_of(*lengths: tuple[int, int]) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(0)
    rows = [
        Example(rng.integers(3, 259, prompt + target).astype(np.int32), prompt) for prompt, target in lengths
    ]
    return collate(rows, pad=2)


def of_both(monkeypatch, found) -> tuple:
    """What `found` gives with every batch padded, and with every batch packed."""
    both = []
    for packs in (False, True):
        monkeypatch.setattr(score, "packing_pays", lambda batch, packs=packs: packs)
        both.append(found())
    return tuple(both)


@pytest.mark.parametrize("recipe", RECIPES, ids=name)
def test_the_losses_and_gradients_of_padded_rows(recipe, monkeypatch):
    batch = batch_of(*LENGTHS)
    seen = []

    def losses_and_gradients():
        model = disturbed(tiny_model(), recipe)
        model.register_forward_pre_hook(
            lambda module, args, given: seen.append((len(given["input_ids"]), rows_of(given))),
            with_kwargs=True,
        )
        nlls = row_nlls(model, batch)
        (nlls.sum() / 14).backward()
        return nlls.detach(), [p.grad for p in model.parameters() if p.requires_grad]

    padded, in_one = of_both(monkeypatch, losses_and_gradients)
    assert seen == [(4, 4), (1, 4)]
    torch.testing.assert_close(in_one[0], padded[0], atol=1e-4, rtol=0)
    for theirs, mine in zip(padded[1], in_one[1], strict=True):
        assert theirs.abs().max() > 0
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=0)


@pytest.mark.parametrize("recipe", RECIPES, ids=name)
def test_a_row_does_not_see_the_others(recipe, monkeypatch):
    monkeypatch.setattr(score, "packing_pays", lambda batch: True)
    model, batch = disturbed(tiny_model(), recipe), batch_of(*LENGTHS)
    with torch.no_grad():
        before = row_nlls(model, batch)
        batch["input_ids"][0, -13:] = 50
        after = row_nlls(model, batch)
    assert (after[0] - before[0]).abs() > 0.1
    torch.testing.assert_close(after[1:], before[1:], atol=0, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=name)
def test_a_training_has_the_same_losses(recipe, monkeypatch, tmp_path):
    padded, in_one = of_both(monkeypatch, lambda: train(tmp_path, recipe)[0])
    assert in_one.losses == pytest.approx(padded.losses, abs=1e-4, rel=0)
    assert in_one.held_out_after == pytest.approx(padded.held_out_after, abs=1e-4, rel=0)


@pytest.mark.slow
def test_preference_pairs_have_the_same_losses(monkeypatch, tmp_path):
    options = {"examples": pairs(), "hyperparameters": PREFERENCES}
    padded, in_one = of_both(monkeypatch, lambda: train(tmp_path, RECIPES[0], **options)[0])
    assert in_one.losses == pytest.approx(padded.losses, abs=1e-4, rel=0)


def test_without_padding_there_is_nothing_but_the_rows():
    batch = batch_of(*LENGTHS)
    found = packed(batch)
    assert found.keys() == {"input_ids", "labels", "position_ids"}
    assert found["position_ids"].tolist() == [[*range(13), *range(4), *range(27), *range(3)]]
    assert found["input_ids"][0, :13].tolist() == batch["input_ids"][0, -13:].tolist()


@pytest.mark.parametrize(
    ("lengths", "pays"),
    [
        ([64, 64, 64, 64], False),
        ([60, 58, 57, 59], False),
        ([99, 63, 61, 58], True),
        ([40, 80, 160, 400], True),
        ([600, 590, 580, 600], False),
        ([1200], False),
    ],
)
def test_it_is_done_where_it_pays(lengths, pays):
    assert packing_pays(batch_of(*((length - 10, 10) for length in lengths))) == pays
