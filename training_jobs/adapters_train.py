"""Examples of several users in, an adapter's folder for each of them out: one base model, one pass over all their rows.

For small data sets, whose steps are short: what a step costs beside its products, and padding, is paid once for all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from training_jobs.adapter_train import Outcome, adapter_keep, check_examples, compared
from training_jobs.attach.adapter import adapter_detach, adapters_attach
from training_jobs.base_models import LoadedBase
from training_jobs.errors import UserFault
from training_jobs.examples import Examples
from training_jobs.messages import Hyperparameters, Probe, Recipe
from training_jobs.sft_together import TrainingsTogether
from training_jobs.training import Pace, Trained, Training, Watcher


@dataclass(frozen=True)
class Wish:
    """One user's training: what from, how, who is told, and a folder of its own for scratch and for the adapter.

    `failed` hears at once of what ends it before its time, and need not wait for the others; it must be quick.
    """

    examples: Examples
    folder: Path
    hyperparameters: Hyperparameters
    watcher: Watcher
    failed: Callable[[Exception], object] = lambda error: None


def adapters_train(
    base: LoadedBase, wishes: Sequence[Wish], *, recipe: Recipe, pace: Pace, with_probe: bool = False
) -> list[Outcome | Exception]:
    """Train an adapter of one recipe for every wish, at once, each with the losses and weights of one trained alone.

    The results are in the order of the wishes: what adapter_train gives for it, or what it would raise; one that fails
    or is stopped leaves the others as they are. The base model is left as it was. Raises UserFault if together is not
    possible at all: not_together, recipe_unfit.
    """
    check_together(base, recipe)
    ends: dict[str, Outcome | Exception] = {}
    chosen: dict[str, Wish] = {}
    for number, wish in enumerate(wishes):
        try:
            check_examples(wish.examples)
            if wish.hyperparameters.type != "supervised":
                raise UserFault(
                    "not_together",
                    "Preference pairs are not trained together. Train these one after another.",
                )
            chosen[f"user{number}"] = wish
        except UserFault as fault:
            ends[f"user{number}"] = fault
            wish.failed(fault)
    if chosen:
        ends |= _train(base, chosen, recipe=recipe, pace=pace, with_probe=with_probe)
    return [ends[f"user{number}"] for number in range(len(wishes))]


def check_together(base: LoadedBase, recipe: Recipe) -> None:
    """Raises UserFault (not_together)."""
    if recipe.position != "prefill":
        raise UserFault(
            "not_together", "Only prefill-only adapters are trained together. Train these one after another."
        )
    if getattr(base.model.config.get_text_config(), "attention_dropout", 0.0):
        raise UserFault(
            "not_together",
            f"{base.ref.name} has dropout, whose random numbers depend on the whole batch, so an adapter would not be "
            "the one that it is alone. Train these one after another.",
        )


def _train(
    base: LoadedBase, wishes: dict[str, Wish], *, recipe: Recipe, pace: Pace, with_probe: bool
) -> dict[str, Outcome | Exception]:
    """By the adapters' names."""
    seeds = {name: wish.hyperparameters.seed for name, wish in wishes.items()}
    try:
        model = adapters_attach(base.model, recipe, seeds=seeds)
    except ValueError as error:
        raise UserFault("recipe_unfit", str(error)) from None
    ends: dict[str, Outcome | Exception] = {}
    kept: list[tuple[Training, Trained, Probe | None]] = []
    try:
        trainings = [
            Training(
                model=model,
                examples=wish.examples,
                hyperparameters=wish.hyperparameters,
                tokenizer=base.tokenizer,
                watcher=wish.watcher,
                folder=wish.folder,
                pace=pace,
                adapter=name,
            )
            for name, wish in wishes.items()
        ]
        together = TrainingsTogether(
            model, trainings, lambda training, error: wishes[training.adapter].failed(error)
        )
        for training, end in zip(trainings, together.train(), strict=True):
            if isinstance(end, Exception):
                ends[training.adapter] = end
                continue
            model.set_adapter(training.adapter)
            try:
                probe = adapter_keep(base, training, end, recipe=recipe, with_probe=with_probe)
                kept.append((training, end, probe))
            except Exception as error:
                ends[training.adapter] = error
    finally:
        adapter_detach(model)
    for training, trained, probe in kept:
        try:
            ends[training.adapter] = compared(base, training, trained, probe)
        except Exception as error:
            ends[training.adapter] = error
    return ends
