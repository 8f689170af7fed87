"""Supervised fine-tuning of one adapter: TRL's SFTTrainer over PEFT, with our masks, our batches, our checkpoints."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch.utils.data import DataLoader
from transformers import PrinterCallback, TrainerCallback
from trl import SFTConfig, SFTTrainer

from training_jobs.attach.prompt_mask import IGNORED
from training_jobs.batches import collate
from training_jobs.errors import UserFault
from training_jobs.footprint import parts_that_fit
from training_jobs.free_memory import memory_now
from training_jobs.memory import until_it_fits
from training_jobs.score import example_nlls, target_nll
from training_jobs.threads import ThreadChooser
from training_jobs.training import MAX_GRADIENT_NORM, Trained, Training


@dataclass(eq=False)
class SupervisedRun(Training):
    """A training that has the model to itself."""

    def train(self, checkpoint: Path | None = None) -> Trained:
        """From `checkpoint` on, if there is one, all is what it would have been without the interruption.

        Raises Stopped (after a checkpoint) when the watcher asks for it; UserFault if a loss is no longer a number, or
        if half a batch is still too much for the memory; JobFault (needs_more_memory) before it begins if the memory
        that is free is too little for a row.
        """
        self.threads = None if self.on_gpu else ThreadChooser()
        self.planned_parts = self.plan()
        trainer = _Trainer(self)  # seeds the random generators, so a checkpoint comes after it
        if checkpoint is not None:
            self.resume(checkpoint)
        self.progress.parts = max(self.progress.parts, self.planned_parts)
        if checkpoint is None and self.held_out:
            self.judge_base(self.score())
        self.begin()
        self.stop_if_asked()
        self.score_epoch()  # the checkpoint may be from the middle of a scoring
        if not self.over:
            trainer.train()
        seconds = time.monotonic() - self.started
        self.score_epoch()
        self.model.eval()
        return self.keep_best(seconds)

    def plan(self) -> int:
        """In how many parts a batch fits into the memory that is free. Raises JobFault (needs_more_memory)."""
        batch, scored = self.hyperparameters.batch_size, self.scored_at_once
        need = self.need()
        memory = memory_now(next(self.model.parameters()).device)
        parts = parts_that_fit(need, memory, batch_size=batch, scored_at_once=scored)
        if parts > 1 and memory is not None:
            self.watcher.parted(parts, needed=need.of(trained=batch, scored=scored), free=memory.free)
        return parts

    @property
    def scored_at_once(self) -> int:
        return max(4, self.hyperparameters.batch_size)

    def score_epoch(self) -> None:
        if self.epoch_unjudged:
            self.judge_epoch(self.score())

    def score(self) -> list[float]:
        """The nats of each held-out example."""

        def of_all() -> list[float]:
            return example_nlls(
                self.model,
                self.held_out,
                batch_size=max(1, self.scored_at_once // self.progress.parts),
                pad=self.pad,
                before_batch=self.stop_if_asked,
            )

        return until_it_fits(of_all, less=self.halve)

    def halve(self) -> None:
        """Compute half as much at a time from here on, with the same losses. Raises UserFault the second time."""
        self.optimizer.zero_grad()  # of the try that ran out of memory
        if self.progress.parts > self.planned_parts:
            size = self.hyperparameters.batch_size
            longest = max(len(example.tokens) for example in self.train_examples)
            raise UserFault(
                "out_of_memory",
                "Training ran out of memory, and again with half a batch at a time. "
                + (f"Use a batch_size below {size}, or split" if size > 1 else "Split")
                + f" long conversations: the longest example has {longest} tokens.",
            )
        self.progress.parts *= 2
        self.watcher.halved(self.progress.step)

    def step_done(self, loss: float) -> bool:
        """After every optimiser step: record, tell, checkpoint, stop. True if it was the last one."""
        self.record(loss)
        if self.progress.step < len(self.batches):
            self.score_epoch()
        if self.threads is not None:
            self.threads.choose()
        self.pause()
        return self.over


class _Trainer(SFTTrainer):
    """SFTTrainer over the batches that are still to do, scoring targets alone, each batch in parts that fit."""

    def __init__(self, run: SupervisedRun) -> None:
        self._run = run
        self.step_loss = float("nan")
        super().__init__(
            model=run.model,
            args=_arguments(run),
            train_dataset=Dataset.from_dict({"example": np.arange(len(run.train_examples))}),
            processing_class=run.tokenizer,
            data_collator=lambda rows: collate(
                [run.train_examples[row["example"]] for row in rows], pad=run.pad
            ),
            optimizers=(run.optimizer, None),
            callbacks=[_StepDone(lambda: run.step_done(self.step_loss))],
        )
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
        """Nats per target token of the whole batch, so that those of its parts add up to the batch's.

        TRL's own head scores every position on a CPU, which is a third of the step.
        """
        return target_nll(model, inputs) / self.step_targets

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        def in_parts() -> torch.Tensor:
            rows = math.ceil(len(inputs["labels"]) / self._run.progress.parts)
            parts = zip(*(tensor.split(rows) for tensor in inputs.values()), strict=True)
            losses = [
                super(_Trainer, self).training_step(model, dict(zip(inputs, part, strict=True)))
                for part in parts
            ]
            return torch.stack(losses).sum()

        self.step_targets = (inputs["labels"] != IGNORED).sum()
        loss = until_it_fits(in_parts, less=self._run.halve)
        self.step_loss = loss.item()
        return loss


class _StepDone(TrainerCallback):
    def __init__(self, then: Callable[[], bool]) -> None:
        self._then = then

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._then():
            control.should_training_stop = True


def _arguments(run: SupervisedRun) -> SFTConfig:
    """TRL's defaults are for a GPU and a base that is trained: what differs here is said."""
    return SFTConfig(
        output_dir=str(run.folder),
        num_train_epochs=1,  # our loader goes through all epochs
        per_device_train_batch_size=run.hyperparameters.batch_size,
        learning_rate=run.hyperparameters.learning_rate,
        max_grad_norm=MAX_GRADIENT_NORM,
        lr_scheduler_type="constant",
        seed=run.hyperparameters.seed,
        bf16=False,  # the base has the dtype it was loaded in, the adapter float32: no autocast
        gradient_checkpointing=run.on_gpu,
        use_cpu=not run.on_gpu,
        max_length=None,  # nothing is ever cut
        dataset_kwargs={"skip_prepare_dataset": True},
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
