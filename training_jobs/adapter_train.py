"""Examples in, an adapter's folder out: what a job and the command line have in common."""

import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from adapters_store.errors import AdapterError
from adapters_store.manifest import BaseRef
from training_jobs.attach.adapter import adapter_attach, adapter_detach, adapter_save
from training_jobs.base_models import LoadedBase
from training_jobs.comparison import compare, compare_preferences
from training_jobs.dpo import PreferenceRun
from training_jobs.errors import OurFault, Stopped, UserFault
from training_jobs.examples import Examples
from training_jobs.memory import out_of_memory
from training_jobs.memory_prompt import prompted_nlls
from training_jobs.messages import (
    Comparison,
    Hyperparameters,
    JobType,
    MemoryComparison,
    MemoryPreferenceComparison,
    PreferenceComparison,
    Probe,
    Recipe,
)
from training_jobs.probe import probe_make
from training_jobs.sft import SupervisedRun
from training_jobs.training import Pace, Trained, Training, Watcher

#: The adapter's folder within the one that a training is given.
ADAPTER = "adapter"
_RUNS: dict[JobType, type[SupervisedRun]] = {"supervised": SupervisedRun, "dpo": PreferenceRun}


@dataclass(frozen=True)
class Outcome:
    """What came of a training. Comparisons are None when nothing was held out to compare on.

    `against_memory` is None, too, when no training conversation is short enough to be quoted in a prompt, or the
    prompt takes more memory than there is.
    """

    trained: Trained
    against_base: Comparison | PreferenceComparison | None
    against_memory: MemoryComparison | MemoryPreferenceComparison | None
    probe: Probe | None


def adapter_train(
    base: LoadedBase,
    examples: Examples,
    folder: Path,
    *,
    recipe: Recipe,
    hyperparameters: Hyperparameters,
    watcher: Watcher,
    pace: Pace,
    checkpoint: Path | None = None,
    halved: bool = False,
    with_probe: bool = False,
) -> Outcome:
    """Train a fresh adapter on `base`, which is left as it was, and write it to ADAPTER in `folder`.

    `examples` are of the hyperparameters' type.

    `halved`: an attempt before this one may have taken more memory than there was, so this one takes half a batch at a
    time (on a GPU, running out of memory is an error that the attempt itself deals with).

    `with_probe`: an engine is going to be asked what the adapter says, so the outcome has the trainer's own answers.

    Raises UserFault (nothing_to_train, recipe_unfit, training_diverged, out_of_memory), OurFault for an adapter that
    is not sound, and Stopped when the watcher asks for it.
    """
    check_examples(examples)
    try:
        model = adapter_attach(base.model, recipe, seed=hyperparameters.seed)
    except ValueError as error:
        raise UserFault("recipe_unfit", str(error)) from None
    try:
        training = _RUNS[hyperparameters.type](
            model=model,
            examples=examples,
            hyperparameters=hyperparameters,
            tokenizer=base.tokenizer,
            watcher=watcher,
            folder=folder,
            pace=pace,
        )
        trained = training.train(checkpoint, halved=halved)
        probe = adapter_keep(base, training, trained, recipe=recipe, with_probe=with_probe)
    finally:
        adapter_detach(model)
    return compared(base, training, trained, probe)


def check_examples(examples: Examples) -> None:
    """Raises UserFault (nothing_to_train)."""
    if not examples.train:
        raise UserFault(
            "nothing_to_train",
            "No row has an assistant message to learn from that fits the model. See the events for each reason.",
        )


def adapter_keep(
    base: LoadedBase, training: Training, trained: Trained, *, recipe: Recipe, with_probe: bool
) -> Probe | None:
    """Write the active adapter, which is that of `training`, to ADAPTER in its folder; what it says, if asked for.

    Raises OurFault for an adapter that is not sound.
    """
    examples = training.examples
    try:
        adapter_save(
            training.model,
            training.folder / ADAPTER,
            recipe=recipe,
            base=BaseRef(digest=base.ref.digest, name=base.ref.name),
            training=_facts(base, examples, trained, recipe=recipe, hyperparameters=training.hyperparameters),
        )
        if with_probe:
            return probe_make(training.model, examples, max_tokens=base.max_tokens, pad=training.pad)
    except AdapterError as error:
        raise OurFault(error.code, f"The trained adapter is not sound: {error.message}") from None
    return None


def compared(base: LoadedBase, training: Training, trained: Trained, probe: Probe | None) -> Outcome:
    """When no adapter is attached any more: what came of `training`, beside the base model. Raises Stopped."""
    seed = training.hyperparameters.seed
    return Outcome(
        trained,
        against_base=_against_base(training.examples, trained, seed=seed),
        against_memory=_against_memory(base, training.examples, trained, training.watcher, seed=seed),
        probe=probe,
    )


def _against_base(
    examples: Examples, trained: Trained, *, seed: int
) -> Comparison | PreferenceComparison | None:
    if not trained.nlls_after:
        return None
    return _compared(
        examples, range(len(trained.nlls_after)), trained.nlls_after, trained.nlls_before, seed=seed
    )


def _compared(
    examples: Examples, numbers: Sequence[int], adapter: Sequence[float], other: Sequence[float], *, seed: int
) -> Comparison | PreferenceComparison:
    """On the held-out examples of these numbers, of which there are the nats."""
    tokens = [examples.held_out[number].target_length for number in numbers]
    conversations = [examples.held_out.conversations[number] for number in numbers]
    if examples.rows_each == 2:
        return compare_preferences(adapter, other, tokens=tokens, conversations=conversations, seed=seed)
    return compare(adapter, other, tokens=tokens, conversations=conversations, seed=seed)


def _against_memory(
    base: LoadedBase, examples: Examples, trained: Trained, watcher: Watcher, *, seed: int
) -> MemoryComparison | MemoryPreferenceComparison | None:
    """On a few held-out targets alone: the base model reads the memory, and a CPU reads slowly."""

    def stop_if_asked() -> None:
        if watcher.should_stop():
            raise Stopped

    prompted = examples.memory.prompted(base.encoder, max_tokens=base.max_tokens)
    if examples.rows_each == 2:
        fitting = {each.number for each in prompted}
        prompted = [each for each in prompted if each.number ^ 1 in fitting]
    if not prompted:
        return None
    try:
        nlls = prompted_nlls(base.model, prompted, before_each=stop_if_asked)
    except Exception as error:
        if not out_of_memory(error):
            raise
        return None
    numbers = [each.number for each in prompted]
    adapter = [trained.nlls_after[number] for number in numbers]
    found = _compared(examples, numbers, adapter, nlls, seed=seed)
    memory = examples.memory
    told = {**found.model_dump(), "quoted": len(memory.quotes), "prompt_tokens": memory.tokens}
    if isinstance(found, PreferenceComparison):
        return MemoryPreferenceComparison(**told)
    return MemoryComparison(**told)


def _facts(
    base: LoadedBase,
    examples: Examples,
    trained: Trained,
    *,
    recipe: Recipe,
    hyperparameters: Hyperparameters,
) -> dict[str, Any]:
    """What the manifest remembers of how the adapter came to be; nothing of the data."""
    on_gpu = base.model.device.type == "cuda"
    trained_on, held_out = examples.count
    return {
        "hyperparameters": hyperparameters.model_dump(exclude_none=True),
        "recipe": recipe.model_dump(),
        "examples": trained_on,
        "held_out_examples": held_out,
        "left_out": sum(left.count for left in examples.left_out.values()),
        "steps": len(trained.losses),
        "best_step": trained.best_step,
        "seconds": round(trained.seconds, 3),
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "dtype": str(base.model.dtype).removeprefix("torch."),
        "peak_memory_bytes": _peak_memory(on_gpu=on_gpu),
    }


def _peak_memory(*, on_gpu: bool) -> int:
    """Bytes: of the GPU's allocator, or this process's resident set."""
    if on_gpu:
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
