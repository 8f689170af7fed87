"""Several users' adapters out of one training: folders, comparisons and probes are those that each would get alone."""

import pytest
import torch

from adapters_store.weights import adapter_read
from tests.training_jobs.adapters import PREFILL, RECIPES
from tests.training_jobs.tiny import tiny_folder
from tests.training_jobs.trainings import HYPERPARAMETERS, PREFERENCES, Recorder, examples, pairs
from training_jobs.adapter_train import ADAPTER, Outcome, adapter_train
from training_jobs.adapters_train import Wish, adapters_train
from training_jobs.base_models import base_digest_of, base_load
from training_jobs.errors import UserFault
from training_jobs.examples import Examples
from training_jobs.messages import Base
from training_jobs.training import Pace

pytestmark = pytest.mark.slow  # it trains

NEVER = Pace(steps=1 << 60, seconds=0)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tiny_folder(tmp_path_factory.mktemp("base") / "tiny")
    return base_load(folder, Base(name="tiny", digest=base_digest_of(folder)))


def wishes(folder, *counts, watcher=Recorder) -> list[Wish]:
    """Of users with so many examples each."""
    made = []
    for number, count in enumerate(counts):
        own = folder / f"{number}"
        own.mkdir()
        settled = HYPERPARAMETERS.model_copy(update={"seed": number})
        made.append(Wish(examples(count) if count else Examples(), own, settled, watcher()))
    return made


def test_each_gets_what_it_would_get_alone(base, tmp_path):
    before = {name: value.clone() for name, value in base.model.state_dict().items()}
    wanted = wishes(tmp_path, 10, 0, 6)
    first, nothing, last = adapters_train(base, wanted, recipe=PREFILL[1], pace=NEVER, with_probe=True)
    assert isinstance(nothing, UserFault)
    assert nothing.code == "nothing_to_train"
    for wish, outcome in ((wanted[0], first), (wanted[2], last)):
        assert isinstance(outcome, Outcome), outcome
        folder = wish.folder / "alone"
        folder.mkdir()
        alone = adapter_train(
            base,
            wish.examples,
            folder,
            recipe=PREFILL[1],
            hyperparameters=wish.hyperparameters,
            watcher=Recorder(),
            pace=NEVER,
            with_probe=True,
        )
        assert outcome.against_base.adapter_loss == pytest.approx(alone.against_base.adapter_loss, rel=1e-4)
        assert outcome.against_base.loss == pytest.approx(alone.against_base.loss, rel=1e-4)
        said, expected = ([each.adapted.tokens for each in of.probe.questions] for of in (outcome, alone))
        assert said == expected
        (manifest, tensors), (single, singles) = (adapter_read(at / ADAPTER) for at in (wish.folder, folder))
        assert manifest.training["steps"] == single.training["steps"]
        assert manifest.training["hyperparameters"] == single.training["hyperparameters"]
        assert tensors.keys() == singles.keys(), "the names know nothing of the others"
        for key, tensor in singles.items():
            torch.testing.assert_close(
                torch.from_numpy(tensors[key]), torch.from_numpy(tensor), atol=1e-4, rtol=1e-4
            )
    after = base.model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_preference_pairs_are_trained_alone(base, tmp_path):
    wanted = Wish(pairs(4), tmp_path, PREFERENCES, Recorder())
    [end] = adapters_train(base, [wanted], recipe=PREFILL[1], pace=NEVER)
    assert isinstance(end, UserFault)
    assert end.code == "not_together"


def test_an_adapter_that_cannot_be_written_is_one_users_alone(base, tmp_path):
    wanted = wishes(tmp_path, 4, 4)
    (wanted[0].folder / ADAPTER).write_text("in the way")
    failed, fine = adapters_train(base, wanted, recipe=PREFILL[1], pace=NEVER)
    assert isinstance(failed, OSError)
    assert isinstance(fine, Outcome)
    assert (wanted[1].folder / ADAPTER).is_dir()


@pytest.mark.parametrize(
    ("recipe", "dropout"),
    [(RECIPES[1], 0.0), (RECIPES[3], 0.0), (PREFILL[0], 0.1)],
    ids=["lora", "direft", "dropout"],
)
def test_what_is_not_trained_together_says_so(base, tmp_path, monkeypatch, recipe, dropout):
    monkeypatch.setattr(base.model.config, "attention_dropout", dropout)
    with pytest.raises(UserFault) as fault:
        adapters_train(base, wishes(tmp_path, 4, 4), recipe=recipe, pace=NEVER)
    assert fault.value.code == "not_together"


def test_a_rank_that_does_not_fit_is_everybodys(base, tmp_path):
    recipe = PREFILL[1].model_copy(update={"rank": 33})
    with pytest.raises(UserFault) as fault:
        adapters_train(base, wishes(tmp_path, 4, 4), recipe=recipe, pace=NEVER)
    assert fault.value.code == "recipe_unfit"
