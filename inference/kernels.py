"""Low-rank updates on a CPU: one call a site for all segments of a step, and nothing for the rest.

Stock vLLM gathers the weights token by token, and indexes the stack with -1 for "no adapter", which is its last slot.
A product a segment through torch spends more time on calls than on numbers where prompts have 17 tokens, so the loop
over segments is compiled, by numba, which vLLM brings. It reads each adapter where it lies in memory, by address.
"""

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import torch
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from inference.segments import Segments, segments_of

# Sums may be reordered, so that they are vectors; NaN and infinity stay what they are.
_compiled = numba.njit(fastmath={"reassoc", "contract", "nsz"}, error_model="numpy", nogil=True)

# Columns of SiteSlots.table.
_DOWN, _DOWN_STRIDE, _UP, _UP_STRIDE, _RANK, _FIELDS = range(6)


class SiteSlots:
    """What the adapters in slots have at one site, as addresses; whoever is in a slot is kept alive here.

    table [slots, slices, 5] int64: of A [rank, in] and Bᵀ [rank, width] of each output slice the address of its first
    number and the numbers from one row to the next, and the rank, which is 0 where there is nothing.
    biases [slots] int64: the address of rank numbers that are added between the two products, or 0.
    """

    def __init__(self, slots: int, widths: Sequence[int]) -> None:
        self.table = np.zeros((slots, len(widths), _FIELDS), np.int64)
        self.biases = np.zeros(slots, np.int64)
        self.offsets = np.cumsum([0, *widths])
        self._held: list[list[torch.Tensor]] = [[] for _ in range(slots)]

    def clear(self, slot: int) -> None:
        self.table[slot] = 0
        self.biases[slot] = 0
        self._held[slot] = []

    def put(
        self,
        slot: int,
        a: Sequence[torch.Tensor | None],
        b: Sequence[torch.Tensor | None],
        bias: torch.Tensor | None = None,
    ) -> None:
        """Let a slot refer to an adapter's a[j] [r, in] and b[j] [width, r] of each slice j (None: nothing there).

        `bias` [r] is that of a site with one slice. Copied is only what is not float32 or not laid out by `by_rank`.
        """
        self.clear(slot)
        for slice_, (down, up) in enumerate(zip(a, b, strict=True)):
            if down is not None and up is not None:
                down, up = _rows(down), _rows(up.T)
                self._held[slot] += [down, up]
                self.table[slot, slice_] = (
                    down.data_ptr(),
                    _row_length(down),
                    up.data_ptr(),
                    _row_length(up),
                    len(down),
                )
        if bias is not None:
            bias = bias.float().contiguous()
            self._held[slot].append(bias)
            self.biases[slot] = bias.data_ptr()

    def add(self, y: torch.Tensor, x: torch.Tensor, segments: Segments) -> None:
        """y[s:e, slice] += (x[s:e] A[slot]ᵀ + bias[slot]) B[slot]ᵀ for every segment and output slice, in place.

        y [tokens, widths of all slices], x [tokens, in], of one float dtype; sums are float32.
        """
        sums = y.float()
        _add(sums.numpy(), x.float().numpy(), segments, self.table, self.biases, self.offsets)
        if sums is not y:
            y.copy_(sums)


def warm_up() -> None:
    """Compile what a step would wait for otherwise, which takes seconds."""
    SiteSlots(1, [1]).add(torch.zeros(1, 1), torch.zeros(1, 1), segments_of([0]))


def by_rank(b: torch.Tensor) -> torch.Tensor:
    """B [out, r] with the numbers of one rank side by side in memory, as the kernel reads them."""
    return b.T.contiguous().T


def _rows(matrix: torch.Tensor) -> torch.Tensor:
    matrix = matrix.float()
    return matrix if matrix.stride(1) == 1 else matrix.contiguous()


def _row_length(rows: torch.Tensor) -> int:
    """Numbers from one row to the next; of a single row torch may say anything."""
    return rows.stride(0) if len(rows) > 1 else rows.shape[1]


@intrinsic
def _at(typing_context: Any, address: Any) -> Any:
    """An address as a pointer to float32."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.float32)(types.int64), code


@_compiled
def _add(
    y: NDArray[np.float32],
    x: NDArray[np.float32],
    segments: Segments,
    table: NDArray[np.int64],
    biases: NDArray[np.int64],
    offsets: NDArray[np.int64],
) -> None:
    for start, end, slot in segments:
        for j in range(table.shape[1]):
            down, down_stride, up, up_stride, rank = table[slot, j]
            if rank:
                low = _down(x[start:end], numba.carray(_at(down), (rank, down_stride)))
                if biases[slot]:
                    low += numba.carray(_at(biases[slot]), rank)
                _up(y, start, offsets[j], offsets[j + 1], low, numba.carray(_at(up), (rank, up_stride)))


@_compiled
def _down(x: NDArray[np.float32], a: NDArray[np.float32]) -> NDArray[np.float32]:
    """x Aᵀ, two tokens and four ranks at a time: eight sums fit into registers. At an end some are computed twice."""
    tokens, rank = len(x), len(a)
    low = np.empty((tokens, rank), np.float32)
    for r in range(0, rank, 4):
        r1, r2, r3 = min(r + 1, rank - 1), min(r + 2, rank - 1), min(r + 3, rank - 1)
        a0, a1, a2, a3 = a[r], a[r1], a[r2], a[r3]
        for t in range(0, tokens, 2):
            u = min(t + 1, tokens - 1)
            p, q = x[t], x[u]
            p0 = p1 = p2 = p3 = q0 = q1 = q2 = q3 = np.float32(0)
            for i in range(x.shape[1]):
                p0 += p[i] * a0[i]
                p1 += p[i] * a1[i]
                p2 += p[i] * a2[i]
                p3 += p[i] * a3[i]
                q0 += q[i] * a0[i]
                q1 += q[i] * a1[i]
                q2 += q[i] * a2[i]
                q3 += q[i] * a3[i]
            low[t, r], low[t, r1], low[t, r2], low[t, r3] = p0, p1, p2, p3
            low[u, r], low[u, r1], low[u, r2], low[u, r3] = q0, q1, q2, q3
    return low


@_compiled
def _up(
    y: NDArray[np.float32],
    start: int,
    left: int,
    right: int,
    low: NDArray[np.float32],
    b: NDArray[np.float32],
) -> None:
    """y[start:, left:right] += low B, four ranks at a time; those beyond the last one count nothing."""
    tokens, rank = low.shape
    for r in range(0, rank, 4):
        r1, r2, r3 = min(r + 1, rank - 1), min(r + 2, rank - 1), min(r + 3, rank - 1)
        m1, m2, m3 = np.float32(r1 > r), np.float32(r2 > r1), np.float32(r3 > r2)
        b0, b1, b2, b3 = b[r], b[r1], b[r2], b[r3]
        for t in range(tokens):
            row = y[
                start + t, left:right
            ]  # as a part of a part its numbers would not be known to be neighbours
            l0, l1, l2, l3 = low[t, r], low[t, r1] * m1, low[t, r2] * m2, low[t, r3] * m3
            for i in range(len(row)):
                row[i] += l0 * b0[i] + l1 * b1[i] + l2 * b2[i] + l3 * b3[i]
