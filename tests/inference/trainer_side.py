"""What the trainer computes: its own adapters on its own base model, in one pass over prompt and answer."""

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from tests.inference.adapters import Adapter
from tests.inference.reference import Scores, one_thread
from training_jobs.attach.adapter import adapter_detach, adapter_load
from training_jobs.attach.prompt_mask import IGNORED


class TrainerSide:
    def __init__(self, folder: Path) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._attached: Adapter | None = None

    @torch.no_grad()
    def one_pass(self, prompt: Sequence[int], answer: Sequence[int], adapter: Adapter | None) -> Scores:
        """Labels are all that says where the prompt ends, as in training."""
        self._attach(adapter)
        tokens, labels = [*prompt, *answer], [*[IGNORED] * len(prompt), *answer]
        with one_thread():
            logits = self._model(input_ids=torch.tensor([tokens]), labels=torch.tensor([labels])).logits
        return Scores(logits[0, len(prompt) - 1 : -1])

    def _attach(self, adapter: Adapter | None) -> None:
        if adapter is self._attached:
            return
        if self._attached is not None:
            self._model = adapter_detach(self._model)
        if adapter is not None:
            self._model, _ = adapter_load(self._model, adapter.folder)
            self._model.eval()
        self._attached = adapter
