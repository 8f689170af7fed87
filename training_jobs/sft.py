"""Supervised fine-tuning: TRL's SFTTrainer over PEFT, with our masks, our batches and our checkpoints."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from datasets import Dataset
from peft import PeftModel
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerBase, PrinterCallback, TrainerCallback
from trl import SFTConfig, SFTTrainer

from training_jobs.attach.prompt_mask import IGNORED
from training_jobs.batches import BatchOrder, collate
from training_jobs.best_epoch import patience_of, trained_parameters
from training_jobs.checkpoint import Progress, checkpoint_load, checkpoint_save
from training_jobs.errors import OurFault, Stopped, UserFault
from training_jobs.examples import Examples
from training_jobs.footprint import footprint, parts_that_fit
from training_jobs.free_memory import memory_now
from training_jobs.memory import until_it_fits
from training_jobs.messages import Hyperparameters
from training_jobs.score import example_nlls, target_nll
from training_jobs.threads import ThreadChooser

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
        self.held_out = list(islice(self.examples.held_out, HELD_OUT_MAX))
        self.held_out_tokens = sum(example.target_length for example in self.held_out)
        self.pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        self.batches = BatchOrder(
            len(self.train_examples),
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
        trainer = _Trainer(self)  # seeds the random generators, so a checkpoint comes after it
        if checkpoint is not None:
            self.progress = checkpoint_load(checkpoint, model=self.model, optimizer=self.optimizer)
        self.progress.parts = max(self.progress.parts, self.planned_parts)
        if checkpoint is None and self.held_out:
            _, self.progress.held_out_before = self.score()
        self.saved_at = time.monotonic()
        self.started = self.saved_at - self.progress.seconds
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
        need = footprint(
            self.model, trained=self.train_examples, scored=self.held_out, checkpointing=self.on_gpu
        )
        memory = memory_now(next(self.model.parameters()).device)
        parts = parts_that_fit(need, memory, batch_size=batch, scored_at_once=scored)
        if parts > 1 and memory is not None:
            self.watcher.parted(parts, needed=need.of(trained=batch, scored=scored), free=memory.free)
        return parts

    @property
    def scored_at_once(self) -> int:
        return max(4, self.hyperparameters.batch_size)

    @property
    def over(self) -> bool:
        patience = patience_of(self.batches.steps_per_epoch)
        return self.progress.step >= len(self.batches) or self.progress.best.hopeless(patience=patience)

    def score_epoch(self) -> None:
        """If an epoch has ended that was not scored yet, score the held-out examples; the best weights are noted."""
        progress = self.progress
        if not self.held_out or progress.step // self.batches.steps_per_epoch == len(progress.best.losses):
            return
        loss, nlls = self.score()
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
            held_out_before=sum(progress.held_out_before) / self.held_out_tokens if self.held_out else None,
            held_out_after=min(best.losses, default=None),
            nlls_before=progress.held_out_before,
            nlls_after=best.nlls,
            best_step=best_step,
            stopped_at=progress.step if progress.step < len(self.batches) else None,
        )

    def score(self) -> tuple[float, list[float]]:
        """Of the held-out examples: nats per target token, and the nats of each."""

        def of_all() -> list[float]:
            return example_nlls(
                self.model,
                self.held_out,
                batch_size=max(1, self.scored_at_once // self.progress.parts),
                pad=self.pad,
                before_batch=self.stop_if_asked,
            )

        nlls = until_it_fits(of_all, less=self.halve)
        loss = sum(nlls) / self.held_out_tokens
        if math.isfinite(loss):
            return loss, nlls
        if self.progress.step:
            raise self.diverged("validation")
        raise OurFault(
            "base_unfit", "The base model gives no number as its loss on the held-out conversations."
        )

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
        batch = [self.train_examples[index] for index in self.batches[progress.step]]
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
