"""Low-rank updates on a CPU: one pass per run of tokens of one adapter, and nothing for the rest.

Stock vLLM gathers the weights token by token, and indexes the stack with -1 for "no adapter", which is its last slot.
Here a step's tokens are cut into segments once, and an adapter that gets a slot is laid out once, by reference: what a
segment then costs at a site is one product down and one product up per output slice. With prompts of 17 tokens the
calls themselves are most of that, so there are as few of them as the shapes allow.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

#: start row, end row, slot. Rows are a step's tokens; segments are in order and never overlap.
Segment = tuple[int, int, int]

NO_SLOT = -1


@dataclass(frozen=True, slots=True)
class SlotWeights:
    """What the adapter of one slot has at one site: only the ranks in use, and only the slices that it adapts."""

    #: [in, R]: Aᵀ of all slices side by side
    down: torch.Tensor
    #: (columns of `down`, columns of the output, Bᵀ [r, width]) of each slice
    ups: tuple[tuple[slice, slice, torch.Tensor], ...]
    #: [R], added between the two products (DiReFT and LoReFT)
    bias: torch.Tensor | None


def segments_of(slots: Sequence[int]) -> list[Segment]:
    """Runs of equal slots, neighbours merged, NO_SLOT left out. `slots` has one slot per token of the step."""
    if not len(slots):
        return []
    array = np.asarray(slots)
    starts = np.flatnonzero(np.diff(array, prepend=array[0] - 1))
    ends = np.append(starts[1:], len(array))
    rows = zip(starts.tolist(), ends.tolist(), array[starts].tolist(), strict=True)
    return [(start, end, slot) for start, end, slot in rows if slot != NO_SLOT]


def slot_weights(
    a: Sequence[torch.Tensor | None],
    b: Sequence[torch.Tensor | None],
    widths: Sequence[int],
    bias: torch.Tensor | None = None,
) -> SlotWeights | None:
    """An adapter's matrices at one site, laid out for a step; None if it has none here.

    a[j] [r, in] and b[j] [widths[j], r] of each output slice j (None: the adapter leaves this slice alone), bias [r] of
    a site with one slice. B is taken as it is, not copied.
    """
    downs, ups = [], []
    ranks = offset = 0
    for down, up, width in zip(a, b, widths, strict=True):
        if down is not None and up is not None:
            rank = down.shape[0]
            downs.append(down)
            ups.append((slice(ranks, ranks + rank), slice(offset, offset + width), up.T))
            ranks += rank
        offset += width
    if not ups:
        return None
    return SlotWeights((torch.cat(downs) if len(downs) > 1 else downs[0]).T, tuple(ups), bias)


def add_lora(
    y: torch.Tensor, x: torch.Tensor, slots: Sequence[SlotWeights | None], segments: Sequence[Segment]
) -> None:
    """y[s:e, slice] += x[s:e] A[slot]ᵀ B[slot]ᵀ for every segment and output slice, in place.

    y [tokens, widths of all slices], x [tokens, in], one float dtype; `slots` holds the site's weights by slot.
    """
    for start, end, slot in segments:
        weights = slots[slot]
        if weights is not None:
            low = x[start:end] @ weights.down
            rows = y[start:end]
            for ranks, columns, up in weights.ups:
                rows[:, columns].addmm_(low[:, ranks], up)


def add_residual(
    hidden: torch.Tensor,
    residual: torch.Tensor,
    slots: Sequence[SlotWeights | None],
    segments: Sequence[Segment],
) -> None:
    """hidden[s:e] += ((hidden + residual)[s:e] A[slot]ᵀ + bias[slot]) B[slot]ᵀ for every segment, in place.

    hidden, residual [tokens, d] (their sum is the residual stream), one float dtype. The method's scale is part of B.
    """
    for start, end, slot in segments:
        weights = slots[slot]
        if weights is not None:
            rows = hidden[start:end]
            low = torch.addmm(weights.bias, rows + residual[start:end], weights.down)
            rows.addmm_(low, weights.ups[0][2])
