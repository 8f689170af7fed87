"""The one rule of prefill-only adapters: position < prompt length (paper section 3).

A position is a token's absolute index in its own sequence, from 0. The prompt is what the model was given (chat
template and generation prompt included), so the first sampled token comes from an adapted position, and nothing that
was generated is ever adapted, however the work was cut into steps.
"""

from typing import Any


def adapted(positions: Any, prompt_length: Any) -> Any:
    """Whether each position is adapted.

    Works on ints, numpy arrays and torch tensors alike, with broadcasting: positions [..., T] int against
    prompt_length [...] or [..., 1] int gives bool of the broadcast shape.
    """
    return positions < prompt_length


def adapted_count(start: int, end: int, prompt_length: int) -> int:
    """How many of the positions start..end-1 are adapted: they are always the first ones of the range."""
    return max(0, min(end, prompt_length) - start)
