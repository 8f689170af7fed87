"""Low-rank updates on a CPU: one pass per run of tokens of one adapter, and nothing for the rest.

Stock vLLM gathers the weights token by token, and indexes the stack with -1 for "no adapter", which is its last slot.
Here a step's tokens are cut into segments once; each site then does two small matrix products per segment, on the rows
and the ranks that are really there. A slot that has nothing at a site (a DiReFT adapter at q_proj) costs nothing there.
"""

from collections.abc import Sequence

import numpy as np
import torch

#: start row, end row, slot. Rows are a step's tokens; segments are in order and never overlap.
Segment = tuple[int, int, int]

NO_SLOT = -1


def segments_of(slots: Sequence[int]) -> list[Segment]:
    """Runs of equal slots, neighbours merged, NO_SLOT left out. `slots` has one slot per token of the step."""
    if not len(slots):
        return []
    array = np.asarray(slots)
    starts = np.flatnonzero(np.diff(array, prepend=array[0] - 1))
    ends = np.append(starts[1:], len(array))
    rows = zip(starts.tolist(), ends.tolist(), array[starts].tolist(), strict=True)
    return [(start, end, slot) for start, end, slot in rows if slot != NO_SLOT]


def set_ranks(stacked_a: torch.Tensor, slot: int, rank: int) -> None:
    """Remember how many of a slot's rows are in use at this site (0: the adapter has nothing here).

    `stacked_a` is a site's [slots, 1, max rank, in] stack; the ranks travel on the tensor, so that whoever is handed
    the stack by vLLM's layers has them too.
    """
    ranks = getattr(stacked_a, "slot_ranks", None)
    if ranks is None:
        ranks = stacked_a.slot_ranks = [0] * stacked_a.shape[0]
    ranks[slot] = rank


def rank_of(stacked_a: torch.Tensor, slot: int) -> int:
    """The rank in use; every row if nobody has said (vLLM's warm-up adapters)."""
    ranks = getattr(stacked_a, "slot_ranks", None)
    return stacked_a.shape[2] if ranks is None else ranks[slot]


def add_lora(
    y: torch.Tensor,
    x: torch.Tensor,
    stacked_a: Sequence[torch.Tensor],
    stacked_b: Sequence[torch.Tensor],
    scale: float,
    widths: Sequence[int],
    segments: Sequence[Segment],
) -> None:
    """y[s:e, slice] += scale * x[s:e] A[slot]ᵀ B[slot]ᵀ for every segment and output slice, in place.

    y [tokens, sum(widths)], x [tokens, in], stacked_a[j] [slots, 1, max rank, in], stacked_b[j] [slots, 1, widths[j],
    max rank]; all of one float dtype.
    """
    for start, end, slot in segments:
        rows = x[start:end]
        offset = 0
        for a, b, width in zip(stacked_a, stacked_b, widths, strict=True):
            rank = rank_of(a, slot)
            if rank:
                low = rows @ a[slot, 0, :rank].T
                y[start:end, offset : offset + width].addmm_(low, b[slot, 0, :, :rank].T, alpha=scale)
            offset += width


def add_residual(
    hidden: torch.Tensor,
    residual: torch.Tensor,
    stacked_a: torch.Tensor,
    stacked_b: torch.Tensor,
    stacked_bias: torch.Tensor,
    segments: Sequence[Segment],
) -> None:
    """hidden[s:e] += ((hidden + residual)[s:e] A[slot]ᵀ + bias[slot]) B[slot]ᵀ for every segment, in place.

    hidden, residual [tokens, d] (their sum is the residual stream), stacked_a [slots, 1, max rank, d], stacked_b
    [slots, 1, d, max rank], stacked_bias [slots, max rank]; all of one float dtype. The method's scale is part of B.
    """
    for start, end, slot in segments:
        rank = rank_of(stacked_a, slot)
        if rank:
            stream = hidden[start:end] + residual[start:end]
            low = torch.addmm(stacked_bias[slot, :rank], stream, stacked_a[slot, 0, :rank].T)
            hidden[start:end].addmm_(low, stacked_b[slot, 0, :, :rank].T)
