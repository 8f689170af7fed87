"""Supervised fine-tuning of one adapter over PEFT, with our masks, batches and checkpoints. `dpo.py` does pairs."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from peft import PeftModel
from transformers import Trainer

from training_jobs.attach.prompt_mask import IGNORED
from training_jobs.batches import collate
from training_jobs.errors import UserFault
from training_jobs.examples import Example, ExampleList
from training_jobs.footprint import parts_that_fit
from training_jobs.free_memory import memory_now
from training_jobs.memory import until_it_fits
from training_jobs.score import example_nlls, target_nll
from training_jobs.threads import ThreadChooser
from training_jobs.training import Trained, Training
from training_jobs.trl_trainers import sft_trainer


@dataclass(eq=False)
class SupervisedRun(Training):
    """A training that has the model to itself. `halvings`: how often this attempt ran out of memory."""

    halvings: int = 0

    def train(self, checkpoint: Path | None = None, *, halved: bool = False) -> Trained:
        """From `checkpoint` on, if there is one, all is what it would have been without the interruption.

        With `halved`, half a batch is computed at a time on a CPU: an attempt before may have taken too much memory.

        Raises Stopped (after a checkpoint) when the watcher asks for it; UserFault if a loss is no longer a number, or
        if half a batch is still too much for the memory; JobFault (needs_more_memory) before it begins if the memory
        that is free is too little for a row.
        """
        self.threads = None if self.on_gpu else ThreadChooser()
        planned = self.plan()
        trainer = self.trainer()  # seeds the random generators, so a checkpoint comes after it
        if checkpoint is not None:
            self.resume(checkpoint)
        self.progress.parts = max(self.progress.parts, planned)
        if halved and not self.on_gpu:
            self.progress.parts = max(self.progress.parts, 2 * planned)
            self.watcher.halved(None)
        if checkpoint is None and self.held_out:
            self.judge_base(self.score())
        self.begin()
        self.stop_if_asked()
        self.score_epoch()  # the checkpoint may be from the middle of a scoring
        if not self.over:
            self.prepare()
            trainer.train()
        seconds = time.monotonic() - self.started
        self.score_epoch()
        self.model.eval()
        return self.keep_best(seconds)

    def trainer(self) -> Trainer:
        return sft_trainer(self)

    def prepare(self) -> None:
        """What has to be known before the first step, whichever it is."""

    def collated(self, numbers: Sequence[int]) -> dict[str, torch.Tensor]:
        """The examples of these numbers, as `collate` lays them out."""
        return collate(self.rows(numbers), pad=self.pad)

    def loss(self, model: PeftModel, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Summed over what `weight` counts, so that a batch's is that of its parts together: nats, scalar float32."""
        return target_nll(model, batch)

    def weight(self, batch: dict[str, torch.Tensor]) -> int:
        """What the loss of a batch is a mean over: its target tokens."""
        return int((batch["labels"] != IGNORED).sum())

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
        return max(4, self.rows_each * self.hyperparameters.batch_size)

    def score_epoch(self) -> None:
        if self.epoch_unjudged:
            self.judge_epoch(self.score())

    def score(self) -> list[float]:
        """The nats of each held-out example."""
        return self.nlls_of(self.held_out)

    def nlls_of(self, examples: Sequence[Example] | ExampleList) -> list[float]:
        """The nats of each, under the model as it is."""

        def of_all() -> list[float]:
            return example_nlls(
                self.model,
                examples,
                batch_size=max(1, self.scored_at_once // self.progress.parts),
                pad=self.pad,
                before_batch=self.stop_if_asked,
            )

        return until_it_fits(of_all, less=self.halve)

    def halve(self) -> None:
        """Compute half as much at a time from here on, with the same losses. Raises UserFault the second time."""
        self.optimizer.zero_grad()  # of the try that ran out of memory
        # Those of a checkpoint were another attempt's, maybe on a smaller machine, and say nothing of this one.
        if self.halvings:
            size = self.hyperparameters.batch_size
            longest = max(len(example.tokens) for example in self.train_examples)
            rows = "conversations" if self.rows_each == 1 else "pairs"
            raise UserFault(
                "out_of_memory",
                "Training ran out of memory, and again with half a batch at a time. "
                + (f"Use a batch_size below {size}, or split" if size > 1 else "Split")
                + f" long {rows}: the longest example has {longest} tokens.",
            )
        self.halvings += 1
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
