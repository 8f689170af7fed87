"""Training state in one file of numbers, nothing that could be executed: safetensors, with JSON in its header."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch.optim import Optimizer

from training_jobs.best_epoch import BestEpoch
from training_jobs.errors import OurFault

_VERSION = 3
_MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass
class Progress:
    """What has happened so far. `losses` is one a step, in nats per target token; `held_out_before` the nats of each
    held-out example before the first step.

    `parts`: a batch is computed in so many, one after the other, for memory's sake.
    """

    step: int = 0
    losses: list[float] = field(default_factory=list)
    trained_tokens: int = 0
    seconds: float = 0.0
    parts: int = 1
    held_out_before: list[float] = field(default_factory=list)
    best: BestEpoch = field(default_factory=BestEpoch)


def checkpoint_save(
    path: Path, *, parameters: Mapping[str, torch.nn.Parameter], optimizer: Optimizer, progress: Progress
) -> None:
    """The adapter's parameters, AdamW moments, the best epoch's adapter, random generators and progress.

    The file appears whole or not at all.
    """
    tensors = {"rng.cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors["rng.cuda"] = torch.cuda.get_rng_state()
    for name, parameter in parameters.items():
        tensors[f"parameter.{name}"] = parameter.detach()
        state = optimizer.state[parameter]
        tensors |= {f"{moment}.{name}": state[moment] for moment in _MOMENTS if state}
    tensors |= {f"best.{name}": weight for name, weight in progress.best.weights.items()}
    facts = {"version": _VERSION, **vars(progress), "best": [progress.best.losses, progress.best.nlls]}
    header = {"attune": json.dumps(facts)}
    partial = path.with_suffix(".partial")
    save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, partial, metadata=header)
    partial.rename(path)


def checkpoint_load(
    path: Path, *, parameters: Mapping[str, torch.nn.Parameter], optimizer: Optimizer
) -> Progress:
    """Put the state of `path` into parameters, optimizer and random generators.

    Raises OurFault if the file is not a checkpoint of this adapter on this base.
    """
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {}).get("attune", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        if facts.pop("version") != _VERSION:
            raise ValueError("another version")
        progress = Progress(**facts | {"best": BestEpoch(*facts["best"])})
        for name, parameter in parameters.items():
            parameter.data.copy_(_like(parameter, tensors[f"parameter.{name}"]))
            if progress.step:
                optimizer.state[parameter] = {
                    "step": torch.tensor(float(progress.step)),
                    **{
                        moment: _like(parameter, tensors[f"{moment}.{name}"]).to(parameter.device)
                        for moment in _MOMENTS
                    },
                }
            if progress.best.losses:
                progress.best.weights[name] = _like(parameter, tensors[f"best.{name}"]).to(parameter.device)
        torch.set_rng_state(tensors["rng.cpu"])
        if "rng.cuda" in tensors and torch.cuda.is_available():
            torch.cuda.set_rng_state(tensors["rng.cuda"])
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise OurFault(
            "checkpoint_invalid", "The job's last checkpoint does not fit this job. Start the job again."
        ) from error
    return progress


def _like(parameter: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    if tensor.shape != parameter.shape or tensor.dtype != parameter.dtype:
        raise ValueError("another shape")
    return tensor
