"""Is one model better than another on the same held-out targets, and how sure is that?"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from training_jobs.messages import Comparison, PreferenceComparison

_DRAWS = 2000
#: The 95 % interval.
_BOUNDS = (0.025, 0.975)


def compare(
    adapter: Sequence[float],
    other: Sequence[float],
    *,
    tokens: Sequence[int],
    conversations: Sequence[int],
    seed: int,
) -> Comparison:
    """The adapter's loss beside another's. All four have one value an example: nats of either, target tokens, and
    which conversation it is from.

    The answers of one conversation are alike, so whole conversations are drawn: pieces of one that was cut together,
    conversations of one chat (between which there was a long silence) each for itself.
    """
    units, unit = np.unique(np.asarray(conversations), return_inverse=True)
    differences = np.bincount(unit, np.subtract(adapter, other))
    low, high = _interval(differences, np.bincount(unit, tokens), seed=seed)
    total = sum(tokens)
    return Comparison(
        conversations=len(units),
        tokens=total,
        loss=sum(other) / total,
        adapter_loss=sum(adapter) / total,
        low=low,
        high=high,
    )


def compare_preferences(
    adapter: Sequence[float],
    other: Sequence[float],
    *,
    tokens: Sequence[int],
    conversations: Sequence[int],
    seed: int,
) -> PreferenceComparison:
    """In how many pairs the adapter prefers what is preferred, beside another model.

    All four have two values a pair, the preferred answer's first: nats of either, target tokens, and which prompt they
    answer. What a model prefers is the answer of the lower loss a token (Meng et al. 2024, SimPO, 2.2). Pairs of one
    prompt are drawn together.
    """
    right, others = (_right(nlls, tokens) for nlls in (adapter, other))
    _, unit = np.unique(np.asarray(conversations[0::2]), return_inverse=True)
    low, high = _interval(np.bincount(unit, right - others), np.bincount(unit), seed=seed)
    return PreferenceComparison(
        pairs=len(right),
        accuracy=float(others.mean()),
        adapter_accuracy=float(right.mean()),
        low=low,
        high=high,
    )


def preference_accuracy(nlls: Sequence[float], *, tokens: Sequence[int]) -> float:
    """The share of pairs of which one model prefers what is preferred; arguments as in compare_preferences."""
    return float(_right(nlls, tokens).mean())


def _right(nlls: Sequence[float], tokens: Sequence[int]) -> npt.NDArray[np.float64]:
    """1 where the first of a pair has the lower loss a token, else 0."""
    losses = np.divide(nlls, tokens)
    return (losses[0::2] < losses[1::2]).astype(np.float64)


def _interval(
    differences: npt.NDArray[np.float64], sizes: npt.NDArray[np.float64], *, seed: int
) -> tuple[float, float]:
    """Of the sum of differences over that of sizes, one of each a unit, by a paired percentile bootstrap (Efron &
    Tibshirani 1993, 13.3): units are drawn with replacement."""
    units = len(differences)
    drawn = np.random.default_rng(seed).integers(units, size=(_DRAWS, units))
    low, high = np.quantile(differences[drawn].sum(axis=1) / sizes[drawn].sum(axis=1), _BOUNDS)
    return float(low), float(high)
