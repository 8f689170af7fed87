"""Which epoch's weights are kept: those with the lowest held-out loss, and when more epochs are of no use."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from peft import PeftModel

#: PEFT's name for a model's first adapter.
ONLY_ADAPTER = "default"

#: Training ends when so many epochs in a row, and so many steps, were no better than the best epoch. Held-out loss is
#: noisy: one worse scoring says little, and no more do two when an epoch is a step or two.
_PATIENT_EPOCHS, _PATIENT_STEPS = 2, 10


def patience_of(steps_per_epoch: int) -> int:
    """In epochs."""
    return max(_PATIENT_EPOCHS, math.ceil(_PATIENT_STEPS / steps_per_epoch))


def trained_parameters(model: PeftModel, adapter: str = ONLY_ADAPTER) -> dict[str, torch.nn.Parameter]:
    """Of one adapter, under the names that they have when it is the only one."""
    return {
        name.replace(f".{adapter}.", f".{ONLY_ADAPTER}."): parameter
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and f".{adapter}." in name
    }


@dataclass
class BestEpoch:
    """`losses`: held-out loss after each epoch, nats per target token. Of the best one, none before the first:
    `nlls`, nats of each held-out example, and `weights`, the trained parameters by name."""

    losses: list[float] = field(default_factory=list)
    nlls: list[float] = field(default_factory=list)
    weights: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def epoch(self) -> int:
        """From 1; the first one of those that are equally good. Raises ValueError before the first."""
        return self.losses.index(min(self.losses)) + 1

    def hopeless(self, *, patience: int) -> bool:
        """The last `patience` epochs were no better than one before them."""
        return bool(self.losses) and len(self.losses) - self.epoch >= patience

    def judge(self, loss: float, nlls: list[float], parameters: Mapping[str, torch.nn.Parameter]) -> None:
        """The next epoch ended with `loss`; its `nlls` and a copy of `parameters` are kept if it is the best so far."""
        self.losses.append(loss)
        if self.epoch == len(self.losses):
            self.nlls = nlls
            self.weights = {name: parameter.detach().clone() for name, parameter in parameters.items()}

    def restore(self, parameters: Mapping[str, torch.nn.Parameter]) -> None:
        """Put the best weights into `parameters`."""
        for name, parameter in parameters.items():
            parameter.data.copy_(self.weights[name])
