"""Direct preference optimisation (Rafailov et al. 2023) of the attached adapter: supervised training, by pairs.

Two examples, one after the other, are a pair: the preferred answer and the rejected one, after the same prompt and so
with the same positions adapted. The reference is the base model with the adapter off, from which the adapter starts.
"""

from collections.abc import Sequence

import numpy as np
import torch
from peft import PeftModel
from torch.nn import functional as F
from transformers import Trainer

from training_jobs.comparison import preference_accuracy
from training_jobs.score import row_nlls
from training_jobs.sft import SupervisedRun
from training_jobs.trl_trainers import dpo_trainer

_REFERENCE = "reference_nlls"


def margins(nlls: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """How much more likely each preferred answer became against the base than the rejected one: [2P] nats to [P]."""
    ratios = reference - nlls
    return ratios[0::2] - ratios[1::2]


class PreferenceRun(SupervisedRun):
    """A run whose examples are pairs. Its loss is -log sigmoid(beta * margin), nats per pair."""

    @property
    def beta(self) -> float:
        assert self.hyperparameters.beta is not None
        return self.hyperparameters.beta

    def trainer(self) -> Trainer:
        return dpo_trainer(self)

    def prepare(self) -> None:
        """The base model's nats of every row, once: they are the same at each step, and after an interruption."""
        with self.model.disable_adapter():
            nlls = self.nlls_of(self.train_examples)
        self.reference = np.array(nlls, dtype=np.float32)

    def collated(self, numbers: Sequence[int]) -> dict[str, torch.Tensor]:
        """And `reference_nlls` [B] float32: the nats of each row under the base model."""
        rows = [2 * number + row for number in numbers for row in (0, 1)]
        return super().collated(numbers) | {_REFERENCE: torch.from_numpy(self.reference[rows])}

    def loss(self, model: PeftModel, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        found = margins(row_nlls(model, batch), batch[_REFERENCE])
        return -F.logsigmoid(self.beta * found).sum()

    def weight(self, batch: dict[str, torch.Tensor]) -> int:
        return len(batch["labels"]) // 2

    def held_out_loss(self, nlls: Sequence[float]) -> float:
        found = margins(torch.tensor(nlls), torch.tensor(self.progress.held_out_before))
        return -F.logsigmoid(self.beta * found).mean().item()

    def held_out_accuracy(self, nlls: Sequence[float]) -> float:
        return preference_accuracy(nlls, tokens=[example.target_length for example in self.held_out])
