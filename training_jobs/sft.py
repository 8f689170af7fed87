"""Supervised fine-tuning over PEFT, with our masks, batches and checkpoints. `dpo.py` does the same by pairs."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Protocol

import torch
from peft import PeftModel
from transformers import PreTrainedTokenizerBase, Trainer

from training_jobs.attach.prompt_mask import IGNORED
from training_jobs.batches import BatchOrder, collate
from training_jobs.best_epoch import patience_of, trained_parameters
from training_jobs.checkpoint import Progress, checkpoint_load, checkpoint_save
from training_jobs.errors import OurFault, Stopped, UserFault
from training_jobs.examples import Example, ExampleList, Examples
from training_jobs.footprint import footprint, parts_that_fit
from training_jobs.free_memory import memory_now
from training_jobs.memory import until_it_fits
from training_jobs.messages import Hyperparameters
from training_jobs.score import example_nlls, target_nll
from training_jobs.threads import ThreadChooser
from training_jobs.trl_trainers import sft_trainer

#: Held-out examples that are scored; more would say the same and take longer.
HELD_OUT_MAX = 256


class Watcher(Protocol):
    """Follows and steers a training. Called from the training thread, between steps; must be quick."""

    def step(self, step: int, total: int, loss: float) -> None: ...

    def held_out(self, step: int, loss: float) -> None: ...

    def kept(self, best_step: int, *, step: int, total: int) -> None:
        """After the last step, if the weights of an earlier one are the better ones and are kept."""

    def halved(self, step: int) -> None:
        """Memory ran out after `step` steps: from here on, half a batch is computed at a time."""

    def parted(self, parts: int, *, needed: int, free: int) -> None:
        """A whole batch would need so many bytes and fewer are free: it is computed in `parts`, one after the other."""

    def checkpoint(self, step: int, path: Path) -> None:
        """A checkpoint is at `path`; the next one has another name. The file is the watcher's to remove."""

    def should_stop(self) -> bool: ...


@dataclass(frozen=True)
class Pace:
    """How often to checkpoint: every so many steps, but not sooner than so many seconds after the last."""

    steps: int
    seconds: float


@dataclass(frozen=True)
class Trained:
    """`losses`: one a step, nats per target token. Held-out losses are None when nothing was held out.

    The weights are those after `best_step`, and `held_out_after` is their loss; `nlls_before` and `nlls_after` have the
    nats of each held-out example that was scored, the first HELD_OUT_MAX of them. `stopped_at`: the last step, if
    training ended before it had done them all.
    """

    losses: list[float]
    trained_tokens: int
    seconds: float
    held_out_tokens: int
    held_out_before: float | None
    held_out_after: float | None
    nlls_before: list[float]
    nlls_after: list[float]
    best_step: int | None
    stopped_at: int | None


@dataclass
class SupervisedRun:
    """One training of the attached adapter, in place. `folder` is scratch space, also for checkpoints.

    AdamW, betas (0.9, 0.999), no weight decay, constant learning rate (paper, A.3.1). With held-out examples, the
    weights are those of the epoch that they find best, and training ends when epochs no longer help
    (training_jobs.best_epoch).
    """

    model: PeftModel
    examples: Examples
    hyperparameters: Hyperparameters
    tokenizer: PreTrainedTokenizerBase
    watcher: Watcher
    folder: Path
    pace: Pace

    def __post_init__(self) -> None:
        tokenizer, hyperparameters = self.tokenizer, self.hyperparameters
        self.train_examples = self.examples.train
        self.rows_each = self.examples.rows_each
        self.held_out = list(islice(self.examples.held_out, HELD_OUT_MAX))
        self.held_out_tokens = sum(example.target_length for example in self.held_out)
        self.pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        self.batches = BatchOrder(
            len(self.train_examples) // self.rows_each,
            batch_size=hyperparameters.batch_size,
            epochs=hyperparameters.n_epochs,
            seed=hyperparameters.seed,
        )
        self.optimizer = torch.optim.AdamW(
            trained_parameters(self.model).values(),
            lr=hyperparameters.learning_rate,
            betas=(0.9, 0.999),
            weight_decay=0.0,
        )
        self.progress = Progress()
        self.on_gpu = next(self.model.parameters()).is_cuda
        self.threads = None if self.on_gpu else ThreadChooser()

    def train(self, checkpoint: Path | None = None) -> Trained:
        """From `checkpoint` on, if there is one, all is what it would have been without the interruption.

        Raises Stopped (after a checkpoint) when the watcher asks for it; UserFault if a loss is no longer a number, or
        if half a batch is still too much for the memory; JobFault (needs_more_memory) before it begins if the memory
        that is free is too little for a row.
        """
        self.planned_parts = self.plan()
        trainer = self.trainer()  # seeds the random generators, so a checkpoint comes after it
        if checkpoint is not None:
            self.progress = checkpoint_load(checkpoint, model=self.model, optimizer=self.optimizer)
        self.progress.parts = max(self.progress.parts, self.planned_parts)
        if checkpoint is None and self.held_out:
            self.progress.held_out_before = self.score()
        self.saved_at = time.monotonic()
        self.started = self.saved_at - self.progress.seconds
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

    def batch(self, numbers: Sequence[int]) -> dict[str, torch.Tensor]:
        """The examples of these numbers, as `collate` lays them out."""
        return collate(self.rows(numbers), pad=self.pad)

    def rows(self, numbers: Sequence[int]) -> list[Example]:
        each = self.rows_each
        return [self.train_examples[each * number + row] for number in numbers for row in range(each)]

    def loss(self, model: PeftModel, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Summed over what `weight` counts, so that a batch's is that of its parts together: nats, scalar float32."""
        return target_nll(model, batch)

    def weight(self, batch: dict[str, torch.Tensor]) -> int:
        """What the loss of a batch is a mean over: its target tokens."""
        return int((batch["labels"] != IGNORED).sum())

    def held_out_loss(self, nlls: Sequence[float]) -> float:
        """The same of the held-out examples, from the nats of each."""
        return sum(nlls) / self.held_out_tokens

    def plan(self) -> int:
        """In how many parts a batch fits into the memory that is free. Raises JobFault (needs_more_memory)."""
        batch, scored = self.hyperparameters.batch_size, self.scored_at_once
        need = footprint(
            self.model, trained=self.train_examples, scored=self.held_out, checkpointing=self.on_gpu
        )
        need = replace(need, trained_row=self.rows_each * need.trained_row)
        memory = memory_now(next(self.model.parameters()).device)
        parts = parts_that_fit(need, memory, batch_size=batch, scored_at_once=scored)
        if parts > 1 and memory is not None:
            self.watcher.parted(parts, needed=need.of(trained=batch, scored=scored), free=memory.free)
        return parts

    @property
    def scored_at_once(self) -> int:
        return max(4, self.rows_each * self.hyperparameters.batch_size)

    @property
    def over(self) -> bool:
        patience = patience_of(self.batches.steps_per_epoch)
        return self.progress.step >= len(self.batches) or self.progress.best.hopeless(patience=patience)

    def score_epoch(self) -> None:
        """If an epoch has ended that was not scored yet, score the held-out examples; the best weights are noted."""
        progress = self.progress
        if not self.held_out or progress.step // self.batches.steps_per_epoch == len(progress.best.losses):
            return
        nlls = self.score()
        loss = self.held_out_loss(nlls)
        progress.best.judge(loss, nlls, self.model)
        self.watcher.held_out(progress.step, loss)

    def keep_best(self, seconds: float) -> Trained:
        """Put the best epoch's weights into the model, if it has been judged, and say what came of the training."""
        progress, best, best_step = self.progress, self.progress.best, None
        if self.held_out:
            best.restore(self.model)
            best_step = best.epoch * self.batches.steps_per_epoch
            if best_step < progress.step:
                self.watcher.kept(best_step, step=progress.step, total=len(self.batches))
        return Trained(
            losses=progress.losses,
            trained_tokens=progress.trained_tokens,
            seconds=seconds,
            held_out_tokens=self.held_out_tokens,
            held_out_before=self.held_out_loss(progress.held_out_before) if self.held_out else None,
            held_out_after=min(best.losses, default=None),
            nlls_before=progress.held_out_before,
            nlls_after=best.nlls,
            best_step=best_step,
            stopped_at=progress.step if progress.step < len(self.batches) else None,
        )

    def score(self) -> list[float]:
        """The nats of each held-out example."""
        nlls = self.nlls_of(self.held_out)
        if math.isfinite(sum(nlls)):
            return nlls
        if self.progress.step:
            raise self.diverged("validation")
        raise OurFault(
            "base_unfit", "The base model gives no number as its loss on the held-out conversations."
        )

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

    def diverged(self, kind: str) -> UserFault:
        return UserFault(
            "training_diverged",
            f"Training diverged at step {self.progress.step}: the {kind} loss is no longer a number. "
            "Choose a lower learning rate.",
        )

    def step_done(self, loss: float) -> bool:
        """After every optimiser step: record, tell, checkpoint, stop. True if it was the last one."""
        progress, total = self.progress, len(self.batches)
        batch = self.rows(self.batches[progress.step])
        progress.step += 1
        progress.losses.append(loss)
        progress.trained_tokens += sum(example.target_length for example in batch)
        if not math.isfinite(loss):
            raise self.diverged("training")
        self.watcher.step(progress.step, total, loss)
        if progress.step < total:
            self.score_epoch()
        if self.threads is not None:
            self.threads.choose()
        self.stop_if_asked()
        due = progress.step % self.pace.steps == 0 and progress.step < total
        if due and time.monotonic() - self.saved_at >= self.pace.seconds:
            self.save()
        return self.over

    def save(self) -> None:
        self.progress.seconds = time.monotonic() - self.started
        path = self.folder / f"checkpoint-{self.progress.step}.safetensors"
        checkpoint_save(path, model=self.model, optimizer=self.optimizer, progress=self.progress)
        self.saved_at = time.monotonic()
        self.watcher.checkpoint(self.progress.step, path)

    def stop_if_asked(self) -> None:
        if not self.watcher.should_stop():
            return
        if self.progress.step:
            self.save()
        raise Stopped
