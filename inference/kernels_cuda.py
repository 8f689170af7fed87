"""The residual site on a GPU: vLLM's own shrink and expand kernels with the bias between them.

Both kernels run one program a slot for the rows that the step's metadata gives it, and none for a slot that is masked
as NO_SLOT. So what a slot lacks costs nothing, although a site's stacks are launched for all slots at once.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from inference.segments import NO_SLOT


def add_residual(
    hidden: torch.Tensor,
    residual: torch.Tensor,
    stacked_a: torch.Tensor,
    stacked_b: torch.Tensor,
    stacked_bias: torch.Tensor,
    token_slots: torch.Tensor,
    metadata: Sequence[torch.Tensor],
    *,
    shrink: Callable[..., Any],
    expand: Callable[..., Any],
) -> None:
    """hidden[t] += ((hidden + residual)[t] A[slot]ᵀ + bias[slot]) B[slot]ᵀ for every adapted row t, in place.

    hidden, residual [tokens, d] (their sum is the residual stream), stacked_a [slots, 1, max rank, d], stacked_b
    [slots, 1, d, max rank], stacked_bias [slots + 1, max rank] whose last row is zero; all float16 or bfloat16.
    token_slots [at least tokens] int64: each row's slot, len(slots) where it has none. `metadata` are the kernels'
    seven tensors; the sixth, on the CPU, says that no row of the step is adapted. The low-rank product is float32.
    """
    if metadata[5].item():
        return
    stream = hidden + residual
    low = torch.empty(
        (1, len(stream), stacked_a.shape[2]), dtype=torch.float32, device=stream.device
    )  # shrink zeroes it
    shrink(stream, [stacked_a], low, *metadata, 1.0)
    low[0] += stacked_bias[token_slots[: len(stream)]]
    expand(low, [stacked_b], hidden, *metadata, offset_start=0, add_inputs=True)


def mask_slots(slots: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
    """`slots` int32 with NO_SLOT in place of each that `present` does not have.

    present [slots + 1] bool; its last entry, which NO_SLOT indexes, is False.
    """
    return torch.where(present[slots.long()], slots, NO_SLOT)
