"""Adapters that are trained in one batch are those that each would be alone, whatever becomes of the others."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from adapters_store.attached import tensors_get
from tests.training_jobs.adapters import PREFILL, name
from tests.training_jobs.tiny import tiny_model, tiny_tokenizer
from tests.training_jobs.trainings import Recorder, ResumedRecorder, examples, run_of
from training_jobs.attach.adapter import adapter_attach, adapter_detach, adapters_attach
from training_jobs.batches import collate
from training_jobs.best_epoch import trained_parameters
from training_jobs.errors import Stopped, UserFault
from training_jobs.examples import Examples
from training_jobs.free_memory import Memory
from training_jobs.messages import Hyperparameters
from training_jobs.score import row_nlls, target_logits
from training_jobs.sft_together import TrainingsTogether, cut
from training_jobs.training import Pace, Trained, Training

pytestmark = pytest.mark.slow  # it trains

TOLERANCE = {"atol": 1e-4, "rtol": 1e-4}


@dataclass
class User:
    """What one of them trains on and how; each differs from the others in all that may differ."""

    examples: Examples
    hyperparameters: Hyperparameters
    watcher: Recorder = field(default_factory=Recorder)

    def settings(self, folder: Path) -> dict[str, Any]:
        return {
            "examples": self.examples,
            "hyperparameters": self.hyperparameters,
            "folder": folder,
            "watcher": self.watcher,
        }


def users() -> list[User]:
    """The first one's epochs help; the second one's held-out rows are unlike, so it ends early; the third has none."""
    alone = examples(7)
    alone.held_out = type(alone.held_out)()
    return [
        User(examples(10), Hyperparameters(n_epochs=3, batch_size=4, learning_rate=1e-2, seed=7)),
        User(
            examples(10, held_out_says="zz"),
            Hyperparameters(n_epochs=6, batch_size=2, learning_rate=2e-2, seed=8),
        ),
        User(alone, Hyperparameters(n_epochs=2, batch_size=3, learning_rate=3e-3, seed=9)),
    ]


def together(recipe, folder: Path, them: list[User], base=None) -> TrainingsTogether:
    names = [f"user{number}" for number in range(len(them))]
    seeds = {name: user.hyperparameters.seed for name, user in zip(names, them, strict=True)}
    model = adapters_attach(base or tiny_model(), recipe, seeds=seeds)
    trainings = []
    for adapter, user in zip(names, them, strict=True):
        own = folder / adapter
        own.mkdir()
        trainings.append(
            Training(
                model=model,
                tokenizer=tiny_tokenizer(),
                pace=Pace(steps=3, seconds=0),
                adapter=adapter,
                **user.settings(own),
            )
        )
    return TrainingsTogether(model, trainings)


def alone(recipe, folder: Path, user: User, checkpoint: Path | None = None):
    """(Trained, tensors) of one who has the model to themselves."""
    model = adapter_attach(tiny_model(), recipe, seed=user.hyperparameters.seed)
    return run_of(model, **user.settings(folder)).train(checkpoint), tensors_get(model)


def tensors_of(trainings: TrainingsTogether, number: int) -> dict[str, torch.Tensor]:
    trainings.model.set_adapter(f"user{number}")
    return tensors_get(trainings.model)


def assert_alike(end: Trained | Exception, tensors, expected: Trained, weights) -> None:
    assert isinstance(end, Trained), end
    assert end.losses == pytest.approx(expected.losses, rel=1e-4, abs=0)
    assert end.nlls_before == pytest.approx(expected.nlls_before, rel=1e-4, abs=0)
    assert end.nlls_after == pytest.approx(expected.nlls_after, rel=1e-4, abs=0)
    assert (end.best_step, end.stopped_at, end.trained_tokens) == (
        expected.best_step,
        expected.stopped_at,
        expected.trained_tokens,
    )
    assert tensors.keys() == weights.keys()
    for key, tensor in weights.items():
        torch.testing.assert_close(tensors[key], tensor, **TOLERANCE)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Of each user alone, by method: what every test here compares with."""
    return {
        recipe.method: [alone(recipe, tmp_path_factory.mktemp("alone"), user) for user in users()]
        for recipe in PREFILL
    }


@pytest.mark.parametrize("recipe", PREFILL, ids=name)
def test_losses_and_weights_are_those_of_training_alone(recipe, expected, tmp_path):
    them = users()
    trainings = together(recipe, tmp_path, them)
    for number, end in enumerate(trainings.train()):
        assert_alike(end, tensors_of(trainings, number), *expected[recipe.method][number])
        assert them[number].watcher.losses == end.losses
    ends = [trained for trained, _ in expected[recipe.method]]
    lengths = [len(end.losses) for end in ends]
    assert len(set(lengths)) == 3, "they end at different steps"
    assert (lengths[1] < 30) == (recipe.method != "loreft"), "one of them early, where its rows make it worse"
    assert them[1].watcher.keeps == [(ends[1].best_step, lengths[1], 30)]


def test_nobody_is_charged_for_the_time_of_the_others(tmp_path):
    trainings = together(PREFILL[1], tmp_path, users())
    began = time.monotonic()
    seconds = [end.seconds for end in trainings.train()]
    assert sum(seconds) < time.monotonic() - began, "no second counts twice"
    assert min(seconds) > 0


@pytest.mark.parametrize("recipe", PREFILL, ids=name)
def test_each_row_goes_through_its_own_adapter(recipe):
    seeds = {"ann": 3, "bob": 4, "eve": 5}
    model = adapters_attach(tiny_model(), recipe, seeds=seeds)
    singles = {each: adapter_attach(tiny_model(), recipe, seed=seed) for each, seed in seeds.items()}
    for each, single in singles.items():
        pairs = zip(trained_parameters(model, each).items(), trained_parameters(single).items(), strict=True)
        for (ours, mine), (theirs, its) in pairs:
            assert ours == theirs
            torch.testing.assert_close(mine, its, atol=0, rtol=0)
            with torch.no_grad():
                its += 0.1 * torch.randn(its.shape, generator=torch.Generator().manual_seed(seeds[each]))
                mine.copy_(its)
    rows = list(examples().train)[:5]
    adapters = ["bob", "ann", "bob", "eve", "ann"]
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    nlls = row_nlls(model, collate(rows, pad=2), adapters)
    nlls.sum().backward()
    for each, single in singles.items():
        own = [row for row, adapter in zip(rows, adapters, strict=True) if adapter == each]
        alone = row_nlls(single, collate(own, pad=2))
        alone.sum().backward()
        chosen = [adapter == each for adapter in adapters]
        torch.testing.assert_close(nlls[chosen], alone, **TOLERANCE)
        gradients = trained_parameters(single)
        for key, parameter in trained_parameters(model, each).items():
            torch.testing.assert_close(parameter.grad, gradients[key].grad, atol=1e-3, rtol=1e-3)
    distinct = row_nlls(model, collate([rows[0]] * 3, pad=2), list(seeds))
    assert len(set(distinct.tolist())) == 3, "the adapters are seen to differ"


@pytest.mark.parametrize("recipe", PREFILL, ids=name)
def test_detaching_takes_all_of_them_away(recipe):
    base = tiny_model()
    names = set(base.state_dict())
    adapter_detach(adapters_attach(base, recipe, seeds={"ann": 1, "bob": 2}))
    assert set(base.state_dict()) == names
    assert not any(parameter.requires_grad for parameter in base.parameters())
    batch = collate(list(examples().train)[:2], pad=2)
    with torch.no_grad():
        torch.testing.assert_close(
            target_logits(base, batch)[0], target_logits(tiny_model(), batch)[0], atol=0, rtol=0
        )


def test_one_that_is_stopped_leaves_the_others_and_goes_on_alone(expected, tmp_path):
    them = users()
    them[0].watcher = Recorder(stop_at=4)
    trainings = together(PREFILL[1], tmp_path, them)
    ends = trainings.train()
    assert isinstance(ends[0], Stopped)
    assert len(them[0].watcher.losses) == 4
    for number in (1, 2):
        assert_alike(ends[number], tensors_of(trainings, number), *expected["direft"][number])
    step, checkpoint = them[0].watcher.checkpoints[-1]
    assert step == 4
    again = User(them[0].examples, them[0].hyperparameters, ResumedRecorder())
    assert_alike(*alone(PREFILL[1], tmp_path, again, checkpoint), *expected["direft"][0])


def test_failures_are_of_one_alone(expected, tmp_path):
    """The first one's weights are no numbers, the second one's watcher breaks."""

    class Broken(Recorder):
        def step(self, step, total, loss):
            raise OSError("the disk is full")

    them = users()
    them[1].watcher = Broken()
    trainings = together(PREFILL[1], tmp_path, them)
    with torch.no_grad():
        next(iter(trainings.trainings[0].parameters.values())).fill_(float("nan"))
    trainings.trainings[0].held_out = []  # its first step shows it, not its first scoring
    diverged, broken, fine = trainings.train()
    assert isinstance(diverged, UserFault)
    assert diverged.code == "training_diverged"
    assert isinstance(broken, OSError)
    assert_alike(fine, tensors_of(trainings, 2), *expected["direft"][2])


def test_stopped_before_the_first_step_nothing_is_computed(tmp_path):
    them = users()
    for user in them:
        user.watcher = Recorder(stop_at=0)
    trainings = together(PREFILL[1], tmp_path, them)
    trainings.model.register_forward_pre_hook(lambda *args: pytest.fail("a pass"))
    assert [type(end) for end in trainings.train()] == [Stopped] * 3


def passes_of(model) -> list[int]:
    """Fills with the rows of each pass in training."""
    seen: list[int] = []

    def note(module, args, kwargs):
        if module.training:
            seen.append(len(kwargs["input_ids"]))

    model.register_forward_pre_hook(note, with_kwargs=True)
    return seen


def test_rows_that_do_not_fit_are_computed_in_passes_with_the_same_losses(expected, tmp_path, monkeypatch):
    them = users()
    trainings = together(PREFILL[1], tmp_path, them)
    needs = [training.need() for training in trainings.trainings]
    free = max(need.of(trained=2, scored=2) for need in needs)
    monkeypatch.setattr("training_jobs.sft_together.memory_now", lambda device: Memory(free, 10**12))
    seen = passes_of(trainings.model)
    ends = trainings.train()
    assert set(seen) <= {1, 2}
    assert not any(user.watcher.parts for user in them), "figures of everybody's rows are told to nobody"
    for number, end in enumerate(ends):
        assert_alike(end, tensors_of(trainings, number), *expected["direft"][number])


def test_who_has_a_row_that_never_fits_is_refused_alone(expected, tmp_path, monkeypatch):
    them = users()
    long = them[0].examples.train[0].tokens.tolist() * 8
    them[0].examples.train.add(long[:-4], long[-4:], conversation=99)
    trainings = together(PREFILL[1], tmp_path, them)
    needs = [training.need() for training in trainings.trainings]
    free = needs[0].of(trained=1, scored=1) - 1
    assert free > needs[1].of(trained=2, scored=2)
    monkeypatch.setattr("training_jobs.sft_together.memory_now", lambda device: Memory(free, free))
    ends = trainings.train()
    assert isinstance(ends[0], UserFault)
    assert ends[0].code == "needs_more_memory"
    for number in (1, 2):
        assert_alike(ends[number], tensors_of(trainings, number), *expected["direft"][number])


def test_when_memory_runs_out_half_the_rows_at_a_time_and_at_last_the_longest_is_out(expected, tmp_path):
    them = users()
    long = them[0].examples.train[0].tokens.tolist() * 4
    them[0].examples.train.add(long[:-4], long[-4:], conversation=99)
    trainings = together(PREFILL[1], tmp_path, them)

    def refuse(module, args, kwargs):
        rows, tokens = kwargs["input_ids"].shape
        if rows > 2 or (module.training and tokens > 200):
            torch.empty(1 << 60, dtype=torch.uint8)

    trainings.model.register_forward_pre_hook(refuse, with_kwargs=True)
    ends = trainings.train()
    assert isinstance(ends[0], UserFault)
    assert ends[0].code == "out_of_memory"
    assert f"has {len(long)} tokens" in ends[0].message
    step = len(them[0].watcher.losses)
    assert long in [row.tokens.tolist() for row in trainings.trainings[0].batch], (
        f"it ends at step {step}, where it is"
    )
    assert them[1].watcher.halvings[:1] == [0]
    for number in (1, 2):
        assert_alike(ends[number], tensors_of(trainings, number), *expected["direft"][number])


@pytest.mark.parametrize(
    ("rows", "most", "sizes"), [(0, 4, []), (4, 4, [4]), (5, 4, [3, 2]), (9, 4, [3, 3, 3]), (3, 1, [1, 1, 1])]
)
def test_parts_are_few_and_even(rows, most, sizes):
    parts = list(cut(range(rows), most))
    assert [len(part) for part in parts] == sizes
    assert [row for part in parts for row in part] == list(range(rows))
