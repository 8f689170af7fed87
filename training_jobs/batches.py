"""Examples as batches: in what order, and laid out how."""

import random
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from typing import Self

import numpy as np
import torch

from training_jobs.attach.prompt_mask import IGNORED
from training_jobs.examples import Example

#: A token in the layers costs as much as so many pairs of tokens in attention, as measured (docs/benchmarks.md).
_PAIRS_A_TOKEN = 1000


@dataclass(frozen=True)
class BatchOrder:
    """Indices of each batch of each epoch; a function of its fields alone, so that a resumed job sees the same.

    Every epoch has every example once; its last batch may be smaller. One epoch at a time is in memory.
    """

    examples: int
    batch_size: int
    epochs: int
    seed: int
    first: int = 0

    @property
    def steps_per_epoch(self) -> int:
        return ceil(self.examples / self.batch_size)

    def after(self, steps: int) -> Self:
        """What is left when `steps` batches are done."""
        return replace(self, first=steps)

    def __len__(self) -> int:
        return self.steps_per_epoch * self.epochs - self.first

    def __getitem__(self, index: int) -> list[int]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        epoch, batch = divmod(self.first + index, self.steps_per_epoch)
        order = _order_of_epoch(self.examples, self.seed, epoch)
        return list(order[batch * self.batch_size : (batch + 1) * self.batch_size])


@lru_cache(maxsize=2)
def _order_of_epoch(examples: int, seed: int, epoch: int) -> "array[int]":
    order = array("q", range(examples))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return order


def collate(examples: Sequence[Example], *, pad: int) -> dict[str, torch.Tensor]:
    """input_ids, labels, attention_mask and position_ids, all [B, T] int64.

    Padded on the left, so that targets end together and the scored positions are the last few columns: the vocabulary
    projection is a large part of a small model's step. Positions are given, so that padding shifts nothing.
    """
    shape = len(examples), max(len(example.tokens) for example in examples)
    rows = {
        "input_ids": np.full(shape, pad, dtype=np.int64),
        "labels": np.full(shape, IGNORED, dtype=np.int64),
        "attention_mask": np.zeros(shape, dtype=np.int64),
        "position_ids": np.zeros(shape, dtype=np.int64),
    }
    for row, example in enumerate(examples):
        start = shape[1] - len(example.tokens)
        rows["input_ids"][row, start:] = example.tokens
        rows["labels"][row, start + example.prompt_length :] = example.tokens[example.prompt_length :]
        rows["attention_mask"][row, start:] = 1
        rows["position_ids"][row, start:] = np.arange(len(example.tokens))
    return {name: torch.from_numpy(values) for name, values in rows.items()}


def packing_pays(batch: Mapping[str, torch.Tensor]) -> bool:
    """Whether `packed` saves time: on a CPU, if padding costs more than what packing adds to attention.

    In one row every token is compared with those of all rows, and that they do not see each other is only masked.
    """
    seen = batch["attention_mask"]
    if seen.device.type != "cpu":
        return False
    tokens = int(seen.sum())
    return _PAIRS_A_TOKEN * (seen.numel() - tokens) > tokens**2 - seen.numel() * seen.shape[1]


def packed(batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The rows of `batch`, as `collate` makes it, one after the other in a single one without padding: [1, tokens].

    There is no attention_mask: where positions begin at 0 again, a row begins, for transformers' attention as for
    our masks.
    """
    seen = batch["attention_mask"] == 1
    return {name: batch[name][seen].unsqueeze(0) for name in ("input_ids", "labels", "position_ids")}
