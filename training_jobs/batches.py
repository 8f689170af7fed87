"""Examples as batches: in what order, and laid out how."""

import random
from collections.abc import Sequence

import torch

from training_jobs.attach.prompt_mask import IGNORED
from training_jobs.data import Example


def batch_order(examples: int, *, batch_size: int, epochs: int, seed: int) -> list[list[int]]:
    """Indices of each batch of each epoch; a function of its arguments alone, so that a resumed job sees the same.

    Every epoch has every example once; its last batch may be smaller.
    """
    batches = []
    for epoch in range(epochs):
        order = list(range(examples))
        random.Random(f"{seed}/{epoch}").shuffle(order)
        batches += [order[start : start + batch_size] for start in range(0, examples, batch_size)]
    return batches


def collate(examples: Sequence[Example], *, pad: int) -> dict[str, torch.Tensor]:
    """input_ids, labels, attention_mask and position_ids, all [B, T] int64.

    Padded on the left, so that targets end together and the scored positions are the last few columns: the vocabulary
    projection is a large part of a small model's step. Positions are given, so that padding shifts nothing.
    """
    longest = max(len(example.tokens) for example in examples)
    rows: dict[str, list[list[int]]] = {
        "input_ids": [],
        "labels": [],
        "attention_mask": [],
        "position_ids": [],
    }
    for example in examples:
        room = longest - len(example.tokens)
        rows["input_ids"].append([pad] * room + example.tokens)
        rows["labels"].append(
            [IGNORED] * (room + example.prompt_length) + example.tokens[example.prompt_length :]
        )
        rows["attention_mask"].append([0] * room + [1] * len(example.tokens))
        rows["position_ids"].append([0] * room + list(range(len(example.tokens))))
    return {name: torch.tensor(values) for name, values in rows.items()}
