"""Short trainings of the tiny model, and a watcher that writes down what they say."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from adapters_store.attached import tensors_get
from adapters_store.chat_template import ChatEncoder
from tests.training_jobs.tiny import talk, tiny_model, tiny_tokenizer
from training_jobs.attach.adapter import adapter_attach
from training_jobs.dpo import PreferenceRun
from training_jobs.examples import Examples
from training_jobs.messages import Hyperparameters, Recipe
from training_jobs.sft import SupervisedRun
from training_jobs.training import Pace, Trained

HYPERPARAMETERS = Hyperparameters(n_epochs=2, batch_size=4, learning_rate=1e-2, seed=7)


@dataclass
class Recorder:
    """A watcher that writes everything down, and asks to stop after `stop_at` steps."""

    stop_at: int | None = None
    losses: list[float] = field(default_factory=list)
    held_out_losses: list[tuple[int, float]] = field(default_factory=list)
    accuracies: list[float | None] = field(default_factory=list)
    checkpoints: list[tuple[int, Path]] = field(default_factory=list)
    #: (best step, last step, all steps), and the steps after which memory ran out.
    keeps: list[tuple[int, int, int]] = field(default_factory=list)
    halvings: list[int | None] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)

    def step(self, step: int, total: int, loss: float) -> None:
        assert len(self.losses) + 1 == step <= total
        self.losses.append(loss)

    def held_out(self, step: int, loss: float, accuracy: float | None) -> None:
        self.held_out_losses.append((step, loss))
        self.accuracies.append(accuracy)

    def kept(self, best_step: int, *, step: int, total: int) -> None:
        self.keeps.append((best_step, step, total))

    def halved(self, step: int | None) -> None:
        self.halvings.append(step)

    def parted(self, parts: int, *, needed: int, free: int) -> None:
        assert needed > free
        self.parts.append(parts)

    def checkpoint(self, step: int, path: Path) -> None:
        self.checkpoints.append((step, path))

    def should_stop(self) -> bool:
        return self.stop_at is not None and len(self.losses) >= self.stop_at


class ResumedRecorder(Recorder):
    """Of a training whose first steps somebody else has seen."""

    def step(self, step: int, total: int, loss: float) -> None:
        self.losses.append(loss)


def examples(count: int = 10, *, held_out_says: str | None = None) -> Examples:
    """Training rows answer "aye n!"; so do four held-out ones, unless they answer `held_out_says`."""
    encoder = ChatEncoder(tiny_tokenizer())
    made = Examples()
    for split, indices in ((made.train, range(count)), (made.held_out, range(90, 94))):
        for index in indices:
            says = f"aye {index % 3}!" if split is made.train else held_out_says or f"aye {index % 3}!"
            turns = talk(("user", "say " + "ab" * (1 + index % 5)), ("assistant", says))
            split.add(*encoder.prompt_and_target(turns, max_tokens=500), conversation=index)
    return made


PREFERENCES = HYPERPARAMETERS.model_copy(update={"beta": 0.5})


def pairs(count: int = 10, *, preferred: str = "aye", rejected: str = "never") -> Examples:
    """Preference pairs that end in a number, and four held-out ones."""
    encoder = ChatEncoder(tiny_tokenizer())
    made = Examples.of_pairs()
    for split, indices in ((made.train, range(count)), (made.held_out, range(90, 94))):
        for index in indices:
            for says in (preferred, rejected):
                asked = ("user", "say " + "ab" * (1 + index % 5))
                turns = talk(asked, ("assistant", f"{says} {index % 3}!"))
                split.add(*encoder.prompt_and_target(turns, max_tokens=500), conversation=index)
    return made


def run_of(model: Any, folder: Path, watcher: Recorder | None = None, **options: Any) -> SupervisedRun:
    options = {
        "examples": examples(),
        "hyperparameters": HYPERPARAMETERS,
        "pace": Pace(steps=3, seconds=0),
        **options,
    }
    kind = SupervisedRun if options["hyperparameters"].beta is None else PreferenceRun
    return kind(
        model=model, tokenizer=tiny_tokenizer(), watcher=watcher or Recorder(), folder=folder, **options
    )


def train(
    folder: Path,
    recipe: Recipe,
    watcher: Recorder | None = None,
    checkpoint: Path | None = None,
    **options: Any,
) -> tuple[Trained, dict[str, torch.Tensor]]:
    model = adapter_attach(tiny_model(), recipe, seed=1)
    return run_of(model, folder, watcher, **options).train(checkpoint), tensors_get(model)
