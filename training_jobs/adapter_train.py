"""Examples in, an adapter's folder out: what a job and the command line have in common."""

import resource
from pathlib import Path
from typing import Any

import torch

from adapters_store.errors import AdapterError
from adapters_store.manifest import BaseRef
from training_jobs.attach.adapter import adapter_attach, adapter_detach, adapter_save
from training_jobs.base_models import LoadedBase
from training_jobs.errors import OurFault, UserFault
from training_jobs.examples import Examples
from training_jobs.messages import Hyperparameters, Recipe
from training_jobs.sft import Pace, SupervisedRun, Trained, Watcher

#: The adapter's folder within the one that a training is given.
ADAPTER = "adapter"


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
) -> Trained:
    """Train a fresh adapter on `base`, which is left as it was, and write it to ADAPTER in `folder`.

    Raises UserFault (nothing_to_train, recipe_unfit, training_diverged, out_of_memory), OurFault for an adapter that
    is not sound, and Stopped when the watcher asks for it.
    """
    if not examples.train:
        raise UserFault(
            "nothing_to_train",
            "No row has an assistant message to learn from that fits the model. See the events for each reason.",
        )
    try:
        model = adapter_attach(base.model, recipe, seed=hyperparameters.seed)
    except ValueError as error:
        raise UserFault("recipe_unfit", str(error)) from None
    try:
        trained = SupervisedRun(
            model=model,
            examples=examples,
            hyperparameters=hyperparameters,
            tokenizer=base.tokenizer,
            watcher=watcher,
            folder=folder,
            pace=pace,
        ).train(checkpoint)
        adapter_save(
            model,
            folder / ADAPTER,
            recipe=recipe,
            base=BaseRef(digest=base.ref.digest, name=base.ref.name),
            training=_facts(base, examples, trained, recipe=recipe, hyperparameters=hyperparameters),
        )
    except AdapterError as error:
        raise OurFault(error.code, f"The trained adapter is not sound: {error.message}") from None
    finally:
        adapter_detach(model)
    return trained


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
    return {
        "hyperparameters": hyperparameters.model_dump(),
        "recipe": recipe.model_dump(),
        "examples": len(examples.train),
        "held_out_examples": len(examples.held_out),
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
