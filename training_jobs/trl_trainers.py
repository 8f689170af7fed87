"""TRL's trainers over our batches: SFTTrainer and DPOTrainer, with all that a run decides asked of the run."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from datasets import Dataset
from torch.utils.data import DataLoader
from transformers import PrinterCallback, Trainer, TrainerCallback
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from training_jobs.memory import until_it_fits
from training_jobs.training import MAX_GRADIENT_NORM

if TYPE_CHECKING:
    from training_jobs.sft import SupervisedRun


def sft_trainer(run: "SupervisedRun") -> Trainer:
    """Seeds the random generators."""
    arguments = SFTConfig(**_arguments(run), dataset_kwargs={"skip_prepare_dataset": True})
    return _SftTrainer(run, args=arguments, **_parts(run))


def dpo_trainer(run: "SupervisedRun") -> Trainer:
    """Seeds the random generators."""
    # Without a reference model of its own, DPOTrainer attaches a second adapter to be one. Ours is the base with the
    # adapter off, whose log-probabilities are computed beforehand.
    return _DpoTrainer(
        run, args=DPOConfig(**_arguments(run)), ref_model=run.model.get_base_model(), **_parts(run)
    )


class _InParts(Trainer):
    """The batches that are still to do, each in parts that fit, and the loss that the run says."""

    def __init__(self, run: "SupervisedRun", **options: Any) -> None:
        self._run = run
        self.step_loss = float("nan")
        super().__init__(callbacks=[_StepDone(lambda: run.step_done(self.step_loss))], **options)
        self.remove_callback(PrinterCallback)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Our own order and layout; the generator keeps the loader from drawing on the training's random numbers."""
        loader = DataLoader(
            self.train_dataset,
            batch_sampler=self._run.batches.after(self._run.progress.step),
            collate_fn=self.data_collator,
            generator=torch.Generator(),
        )
        return self.accelerator.prepare(loader)

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """The mean over the whole batch, so that those of its parts add up to the batch's.

        TRL's own head scores every position on a CPU, which is a third of the step.
        """
        return self._run.loss(model, inputs) / self.step_weight

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        def in_parts() -> torch.Tensor:
            each = self._run.rows_each
            rows = each * math.ceil(len(inputs["labels"]) / each / self._run.progress.parts)
            parts = zip(*(tensor.split(rows) for tensor in inputs.values()), strict=True)
            losses = [
                super(_InParts, self).training_step(model, dict(zip(inputs, part, strict=True)))
                for part in parts
            ]
            return torch.stack(losses).sum()

        self.step_weight = self._run.weight(inputs)
        loss = until_it_fits(in_parts, less=self._run.halve)
        self.step_loss = loss.item()
        return loss


class _SftTrainer(_InParts, SFTTrainer):
    """Supervised."""


class _DpoTrainer(_InParts, DPOTrainer):
    """By preference pairs."""

    def _prepare_dataset(self, dataset: Dataset, *args: Any) -> Dataset:
        """It would tokenize; SFTTrainer has an option to leave that alone."""
        return dataset


class _StepDone(TrainerCallback):
    def __init__(self, then: Callable[[], bool]) -> None:
        self._then = then

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._then():
            control.should_training_stop = True


def _parts(run: "SupervisedRun") -> dict[str, Any]:
    return {
        "model": run.model,
        "train_dataset": Dataset.from_dict({"number": np.arange(run.batches.examples)}),
        "processing_class": run.tokenizer,
        "data_collator": lambda rows: run.collated([row["number"] for row in rows]),
        "optimizers": (run.optimizer, None),
    }


def _arguments(run: "SupervisedRun") -> dict[str, Any]:
    """TRL's defaults are for a GPU and a base that is trained: what differs here is said."""
    return {
        "output_dir": str(run.folder),
        "num_train_epochs": 1,  # our loader goes through all epochs
        "per_device_train_batch_size": run.hyperparameters.batch_size,
        "learning_rate": run.hyperparameters.learning_rate,
        "max_grad_norm": MAX_GRADIENT_NORM,
        "lr_scheduler_type": "constant",
        "seed": run.hyperparameters.seed,
        "bf16": False,  # the base has the dtype it was loaded in, the adapter float32: no autocast
        "gradient_checkpointing": run.on_gpu,
        "use_cpu": not run.on_gpu,
        "max_length": None,  # nothing is ever cut
        "logging_strategy": "no",
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }
