"""One adapter's training between its steps: what comes next, what has happened, who is told, and when it is over.

How a step is computed is not here: alone in training_jobs.sft and dpo, beside others in sft_together.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Protocol

import torch
from peft import PeftModel
from transformers import PreTrainedTokenizerBase

from training_jobs.batches import BatchOrder
from training_jobs.best_epoch import ONLY_ADAPTER, patience_of, trained_parameters
from training_jobs.checkpoint import Progress, checkpoint_load, checkpoint_save
from training_jobs.errors import OurFault, Stopped, UserFault
from training_jobs.examples import HELD_OUT_MAX, Example, Examples
from training_jobs.footprint import Footprint, footprint
from training_jobs.messages import Hyperparameters

#: A step's gradient is scaled down to this norm if it is longer (Trainer's own default).
MAX_GRADIENT_NORM = 1.0


class Watcher(Protocol):
    """Follows and steers a training. Called from the training thread, between steps; must be quick."""

    def step(self, step: int, total: int, loss: float) -> None: ...

    def held_out(self, step: int, loss: float, accuracy: float | None) -> None:
        """After each epoch. `accuracy`: see Training.held_out_accuracy."""

    def kept(self, best_step: int, *, step: int, total: int) -> None:
        """After the last step, if the weights of an earlier one are the better ones and are kept."""

    def halved(self, step: int | None) -> None:
        """Memory ran out after `step` steps, or, with None, perhaps in an attempt before: from here on, half a batch is
        computed at a time."""

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


@dataclass(eq=False)
class Training:
    """One training of the attached adapter named `adapter`, in place. `folder` is scratch space, also for checkpoints.

    AdamW, betas (0.9, 0.999), no weight decay, constant learning rate (paper, A.3.1), gradients clipped. With held-out
    examples, the weights are those of the epoch that they find best, and training ends when epochs no longer help
    (training_jobs.best_epoch).
    """

    model: PeftModel
    examples: Examples
    hyperparameters: Hyperparameters
    tokenizer: PreTrainedTokenizerBase
    watcher: Watcher
    folder: Path
    pace: Pace
    adapter: str = ONLY_ADAPTER

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
        self.parameters = trained_parameters(self.model, self.adapter)
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(),
            lr=hyperparameters.learning_rate,
            betas=(0.9, 0.999),
            weight_decay=0.0,
        )
        self.progress = Progress()
        self.started = time.monotonic()
        self.on_gpu = next(self.model.parameters()).is_cuda

    def resume(self, checkpoint: Path) -> None:
        """Go on from `checkpoint`. Raises OurFault if it is not one of this training."""
        self.progress = checkpoint_load(checkpoint, parameters=self.parameters, optimizer=self.optimizer)

    def begin(self) -> None:
        """The clock runs from here on."""
        self.saved_at = time.monotonic()
        self.started = self.saved_at - self.progress.seconds

    @property
    def batch(self) -> list[Example]:
        """Of the next step."""
        return self.rows(self.batches[self.progress.step])

    def rows(self, numbers: Sequence[int]) -> list[Example]:
        """Of what is learned as one: an example, or the two of a preference pair."""
        each = self.rows_each
        return [self.train_examples[each * number + row] for number in numbers for row in range(each)]

    @property
    def over(self) -> bool:
        patience = patience_of(self.batches.steps_per_epoch)
        return self.progress.step >= len(self.batches) or self.progress.best.hopeless(patience=patience)

    @property
    def epoch_unjudged(self) -> bool:
        """An epoch has ended whose weights were not scored yet."""
        ended = self.progress.step // self.batches.steps_per_epoch
        return bool(self.held_out) and ended != len(self.progress.best.losses)

    def need(self) -> Footprint:
        """Of memory, beside the base model."""
        need = footprint(
            self.model, trained=self.train_examples, scored=self.held_out, checkpointing=self.on_gpu
        )
        return replace(need, trained_row=self.rows_each * need.trained_row)

    def judge_base(self, nlls: list[float]) -> None:
        """`nlls`: of each held-out example, before the first step. Raises OurFault if they are no numbers."""
        self._check(nlls)
        self.progress.held_out_before = nlls

    def judge_epoch(self, nlls: list[float]) -> None:
        """`nlls`: of each held-out example, after an epoch; the best weights are noted. Raises UserFault likewise."""
        self._check(nlls)
        loss = self.held_out_loss(nlls)
        self.progress.best.judge(loss, nlls, self.parameters)
        self.watcher.held_out(self.progress.step, loss, self.held_out_accuracy(nlls))

    def held_out_loss(self, nlls: Sequence[float]) -> float:
        """What a step's loss is, of the held-out examples, from the nats of each: nats per target token."""
        return sum(nlls) / self.held_out_tokens

    def held_out_accuracy(self, nlls: Sequence[float]) -> float | None:
        """The share of held-out preference pairs in which the better answer is the likelier one; else None."""
        return None

    def _check(self, nlls: list[float]) -> None:
        if math.isfinite(sum(nlls)):
            return
        if self.progress.step:
            raise self._diverged("validation")
        raise OurFault("base_unfit", "The base model gives no number as its loss on what is held out.")

    def record(self, loss: float) -> None:
        """An optimiser step was done whose batch had this loss. Raises UserFault if it is no number."""
        progress = self.progress
        progress.trained_tokens += sum(example.target_length for example in self.batch)
        progress.step += 1
        progress.losses.append(loss)
        if not math.isfinite(loss):
            raise self._diverged("training")
        self.watcher.step(progress.step, len(self.batches), loss)

    def _diverged(self, kind: str) -> UserFault:
        return UserFault(
            "training_diverged",
            f"Training diverged at step {self.progress.step}: the {kind} loss is no longer a number. "
            "Choose a lower learning rate.",
        )

    def pause(self) -> None:
        """Between two steps: end if asked to (Stopped, after a checkpoint), and leave a checkpoint if one is due."""
        self.stop_if_asked()
        step = self.progress.step
        due = step % self.pace.steps == 0 and step < len(self.batches)
        if due and time.monotonic() - self.saved_at >= self.pace.seconds:
            self.save()

    def stop_if_asked(self) -> None:
        if not self.watcher.should_stop():
            return
        if self.progress.step:
            self.save()
        raise Stopped

    def save(self) -> None:
        self.progress.seconds = time.monotonic() - self.started
        path = self.folder / f"checkpoint-{self.progress.step}.safetensors"
        checkpoint_save(path, parameters=self.parameters, optimizer=self.optimizer, progress=self.progress)
        self.saved_at = time.monotonic()
        self.watcher.checkpoint(self.progress.step, path)

    def keep_best(self, seconds: float) -> Trained:
        """Put the best epoch's weights into the model, if it has been judged, and say what came of the training."""
        progress, best, best_step = self.progress, self.progress.best, None
        if self.held_out:
            best.restore(self.parameters)
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
