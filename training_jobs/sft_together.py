"""Supervised fine-tuning of several adapters on one base model at once: rows of different users in one batch.

Every training sees the batches, the order and the rate that it would see alone (training_jobs.sft); its gradient is of
its own loss and clipped by itself; it is judged and ends by itself. Rows are independent of each other in all that a
decoder computes, so what differs from training alone is rounding.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from math import ceil
from typing import TypeVar

import torch
from peft import PeftModel

from training_jobs.batches import collate
from training_jobs.errors import Stopped, UserFault
from training_jobs.examples import Example
from training_jobs.footprint import Footprint, parts_that_fit
from training_jobs.free_memory import memory_now
from training_jobs.memory import until_it_fits
from training_jobs.score import example_nlls, row_nlls
from training_jobs.threads import ThreadChooser
from training_jobs.training import MAX_GRADIENT_NORM, Trained, Training

#: Rows of one pass on a CPU, where more are no faster. A step's rows are sorted by length before they are cut into
#: passes, so fewer rows a pass are less padding, too.
_ROWS_ON_CPU = 8

T = TypeVar("T")


class TrainingsTogether:
    """Trainings of one `model`, each of an adapter of its own (adapters_attach), all of one recipe.

    `failed` hears of what ends one before its time at once, while the others go on; it must be quick.
    """

    def __init__(
        self,
        model: PeftModel,
        trainings: Sequence[Training],
        failed: Callable[[Training, Exception], None] = lambda training, error: None,
    ) -> None:
        self.model, self.trainings, self.failed = model, trainings, failed
        self.device = next(model.parameters()).device
        self.rows = 1  # at once
        #: What each training gave, or what it raised.
        self.ends: dict[Training, Trained | Exception] = {}

    @property
    def live(self) -> list[Training]:
        return [training for training in self.trainings if training not in self.ends]

    def train(self) -> list[Trained | Exception]:
        """How each training ended, in their order: as Trained, or with what it would raise alone.

        One that is stopped, diverges or needs more memory than there is leaves the others as they are.
        """
        on_gpu = self.device.type == "cuda"
        if on_gpu:
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        threads = None if on_gpu else ThreadChooser()
        self.plan(most=None if on_gpu else _ROWS_ON_CPU)
        self.score([training for training in self.live if training.held_out], Training.judge_base)
        self.each(Training.begin)
        self.each(Training.stop_if_asked)
        while self.live:
            with self.time_of({training: _tokens(training.batch) for training in self.live}):
                self.step()
            ended = [training for training in self.live if training.epoch_unjudged]
            with self.time_of({training: _tokens(training.held_out) for training in ended}):
                self.score(ended, Training.judge_epoch)
            self.each(self.end_if_over)
            self.each(Training.pause)
            if threads is not None:
                threads.choose()
        self.model.eval()
        return [self.ends[training] for training in self.trainings]

    def each(self, act: Callable[[Training], None]) -> None:
        """Do something to every training that has not ended; what it raises is the end of that one alone."""
        for training in self.live:
            with self.time_of({training: 1}):
                try:
                    act(training)
                except Exception as error:
                    self.fail(training, error)

    def fail(self, training: Training, error: Exception) -> None:
        self.ends[training] = error
        self.failed(training, error)

    @contextmanager
    def time_of(self, tokens: Mapping[Training, int]) -> Iterator[None]:
        """Clocks share the time by the tokens that each brings, so that nobody is charged for the others' rows."""
        began, live = time.monotonic(), self.live
        yield
        elapsed = time.monotonic() - began
        for training in live:
            training.started += elapsed * (1 - tokens.get(training, 0) / max(1, sum(tokens.values())))

    def end_if_over(self, training: Training) -> None:
        """With a checkpoint if others go on: whoever is interrupted before they end has lost nothing."""
        if training.over:
            if len(self.live) > 1:
                training.save()
            self.ends[training] = training.keep_best(time.monotonic() - training.started)

    def plan(self, *, most: int | None) -> None:
        """How many rows fit into the memory that is free, at most `most`; who has a row that does not is out."""
        memory = memory_now(self.device)
        needs: list[Footprint] = []

        def fits(training: Training) -> None:
            need = training.need()
            parts_that_fit(need, memory, batch_size=1, scored_at_once=1)
            needs.append(need)

        self.each(fits)
        if not needs:
            return
        rows = sum(training.hyperparameters.batch_size for training in self.live)
        self.rows = min(rows, most or rows)
        need = Footprint(
            fixed=max(need.fixed for need in needs),
            trained_row=max(need.trained_row for need in needs),
            scored_row=max(need.scored_row for need in needs),
        )
        parts = parts_that_fit(need, memory, batch_size=self.rows, scored_at_once=self.rows)
        # Told to nobody: the figures are of everybody's rows.
        self.rows = ceil(self.rows / parts)

    def step(self) -> None:
        """One optimiser step of everybody."""
        losses = until_it_fits(
            self.gradients, less=lambda: self.halve({training: training.batch for training in self.live})
        )

        def apply(training: Training) -> None:
            torch.nn.utils.clip_grad_norm_(training.parameters.values(), MAX_GRADIENT_NORM)
            training.optimizer.step()
            training.optimizer.zero_grad()
            training.record(losses[training])

        self.each(apply)

    def gradients(self) -> dict[Training, float]:
        """Of each one's loss, nats per target token of its own batch, in its parameters; returned are the losses."""
        self.model.train()
        batches = {training: training.batch for training in self.live}
        targets = {
            training: sum(example.target_length for example in batch) for training, batch in batches.items()
        }
        rows = [(training, example) for training, batch in batches.items() for example in batch]
        losses = dict.fromkeys(batches, 0.0)
        for part in cut(sorted(rows, key=lambda row: -len(row[1].tokens)), self.rows):
            owners, examples = zip(*part, strict=True)
            adapters = [training.adapter for training in owners]
            laid_out = collate(examples, pad=self.trainings[0].pad)
            nlls = row_nlls(
                self.model, {name: tensor.to(self.device) for name, tensor in laid_out.items()}, adapters
            )
            shares = nlls / torch.tensor([targets[training] for training in owners], device=self.device)
            shares.sum().backward()
            for training, share in zip(owners, shares.tolist(), strict=True):
                losses[training] += share
        return losses

    def score(self, due: Sequence[Training], judge: Callable[[Training, list[float]], None]) -> None:
        """Hand each of `due` the nats of its held-out examples."""

        def of_all() -> dict[Training, list[float]]:
            scored = [training for training in due if training not in self.ends]
            nlls = iter(
                example_nlls(
                    self.model,
                    [example for training in scored for example in training.held_out],
                    batch_size=self.rows,
                    pad=self.trainings[0].pad,
                    before_batch=self.stop_who_asks,
                    adapters=[training.adapter for training in scored for _ in training.held_out],
                )
            )
            return {training: list(islice(nlls, len(training.held_out))) for training in scored}

        def less() -> None:
            self.halve({training: training.held_out for training in self.live if training in due})

        if not due:
            return
        try:
            found = until_it_fits(of_all, less=less)
        except Stopped:
            return

        def judged(training: Training) -> None:
            if training in found:
                judge(training, found[training])

        self.each(judged)

    def stop_who_asks(self) -> None:
        """Raises Stopped when nobody is left."""
        self.each(Training.stop_if_asked)
        if not self.live:
            raise Stopped

    def halve(self, rows: dict[Training, list[Example]]) -> None:
        """Memory ran out on `rows`: half as many at once from here on. If it was one, who has the longest is out."""
        for training in self.live:
            training.optimizer.zero_grad()  # of the try that ran out
        if self.rows > 1:
            self.rows = ceil(self.rows / 2)
            self.each(lambda training: training.watcher.halved(training.progress.step))
        elif rows:
            longest = {
                training: max(len(example.tokens) for example in own) for training, own in rows.items()
            }
            out = max(longest, key=lambda training: longest[training])
            fault = UserFault(
                "out_of_memory",
                "Training ran out of memory with a single row at a time. Split long conversations: an example has "
                f"{longest[out]} tokens.",
            )
            self.fail(out, fault)


def _tokens(rows: Sequence[Example]) -> int:
    return sum(len(row.tokens) for row in rows)


def cut(rows: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """In parts of at most `most`, as few and as even as can be."""
    parts = max(1, ceil(len(rows) / most))
    size = max(1, ceil(len(rows) / parts))
    return (rows[start : start + size] for start in range(0, len(rows), size))
