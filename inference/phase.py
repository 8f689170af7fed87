"""Which tokens of a step are adapted, and with which adapter: position < prompt length, token by token."""

from collections.abc import Collection
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from adapters_store.errors import BadName
from adapters_store.names import Position, parse_name
from adapters_store.preft.positions import adapted

Ints = NDArray[np.integer]

NO_ADAPTER = 0


@lru_cache(maxsize=65536)
def position_of(name: str) -> Position:
    """Where an adapter acts, read from its serving name. A name that is not ours is ordinary vLLM: every position."""
    try:
        return parse_name(name).position
    except BadName:
        return "all"


def token_adapters(
    *,
    adapters: Ints,
    prefill_only: NDArray[np.bool_],
    prompt_lengths: Ints,
    starts: Ints,
    scheduled: Ints,
    sampled: Ints,
) -> tuple[Ints, Ints]:
    """Adapter ids of every token and of every sampled position of a step (NO_ADAPTER where there is none).

    Per request, all [n] int: `adapters` its adapter's id, `prefill_only` bool, `prompt_lengths` in tokens, `starts` the
    absolute position of its first token in this step, `scheduled` how many tokens it has in this step, `sampled` for
    how many of the last of them logits are taken. Returns ([sum(scheduled)], [sum(sampled)]) ints.
    """
    if not adapters.any():
        return np.zeros(int(scheduled.sum()), np.int64), np.zeros(int(sampled.sum()), np.int64)
    # vLLM's arrays are int32, and numpy would wrap "no limit" to -1 rather than widen them.
    limits = np.where(prefill_only, prompt_lengths.astype(np.int64), np.iinfo(np.int64).max)
    ends = starts + scheduled
    return (
        _by_position(adapters, limits, starts, scheduled),
        _by_position(adapters, limits, ends - sampled, sampled),
    )


def _by_position(adapters: Ints, limits: Ints, starts: Ints, counts: Ints) -> Ints:
    """Positions starts[i] .. starts[i]+counts[i]-1 of each request i, laid end to end, to adapter ids."""
    rows = np.repeat(np.arange(len(counts)), counts)
    offsets = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.where(adapted(starts[rows] + offsets, limits[rows]), adapters[rows], NO_ADAPTER)


def active(*mappings: Ints) -> set[int]:
    """The adapters that a step really needs: derived from its tokens, not from who is in the batch."""
    ids: set[int] = set()
    for mapping in mappings:
        ids.update(np.unique(mapping).tolist())
    return ids - {NO_ADAPTER}


def prefill_only(adapters: Ints, prefill_ids: Collection[int]) -> NDArray[np.bool_]:
    """[n] bool: whether each request's adapter acts on its prompt alone."""
    return np.isin(adapters, list(prefill_ids))
