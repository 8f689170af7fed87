"""A step's tokens cut into runs of one adapter."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

NO_SLOT = -1

#: [n, 3] int64: start row, end row, slot. Rows are a step's tokens; segments are in order and never overlap.
Segments = NDArray[np.int64]

NOTHING: Segments = np.empty((0, 3), np.int64)


def segments_of(slots: Sequence[int]) -> Segments:
    """Runs of equal slots, neighbours merged, NO_SLOT left out. `slots` has one slot per token of the step."""
    if not len(slots):
        return NOTHING
    array = np.asarray(slots, np.int64)
    starts = np.flatnonzero(np.diff(array, prepend=array[0] - 1))
    rows: Segments = np.stack([starts, np.append(starts[1:], len(array)), array[starts]], axis=1)
    return rows[array[starts] != NO_SLOT]
