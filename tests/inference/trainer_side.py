"""What the trainer computes: its own adapters on its own base model, in one pass over prompt and answer."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from tests.inference.adapters import Adapter
from tests.inference.reference import Scores, one_thread
from training_jobs.attach.adapter import adapter_detach, adapter_load
from training_jobs.batches import collate
from training_jobs.examples import Example
from training_jobs.score import target_logits


class TrainerSide:
    def __init__(self, folder: Path) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._attached: Adapter | None = None

    @torch.no_grad()
    def one_pass(self, prompt: Sequence[int], answer: Sequence[int], adapter: Adapter | None) -> Scores:
        """The answer as a target of training: the logits of the very step that the trainer takes."""
        self.attach(adapter)
        example = Example(np.array([*prompt, *answer]), len(prompt))
        with one_thread():
            logits, targets = target_logits(self.model, collate([example], pad=0))
        assert targets.tolist() == list(answer)
        return Scores(logits)

    def attach(self, adapter: Adapter | None) -> None:
        """Make `model` a PEFT model with this adapter, or the base model."""
        if adapter is self._attached:
            return
        if self._attached is not None:
            self.model = adapter_detach(self.model)
        if adapter is not None:
            self.model, _ = adapter_load(self.model, adapter.folder)
            self.model.eval()
        self._attached = adapter
