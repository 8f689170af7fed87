"""Running out of memory: how it shows, and the way out, which is to compute with less at a time."""

from collections.abc import Callable
from typing import TypeVar

import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size

T = TypeVar("T")


def out_of_memory(error: Exception) -> bool:
    """torch has an error of its own for GPUs and raises RuntimeError on a CPU; Python raises MemoryError."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or should_reduce_batch_size(error)


def until_it_fits(compute: Callable[[], T], *, less: Callable[[], None]) -> T:
    """The result of `compute`. Whenever it runs out of memory, `less` makes it need less, or raises."""
    while True:
        try:
            return compute()
        except Exception as error:
            if not out_of_memory(error):
                raise
        # The error is gone by now, and with its traceback the tensors that the frames in it held.
        clear_device_cache(garbage_collection=True)
        less()
