"""Is one model better than another on the same held-out targets, and how sure is that?"""

from collections.abc import Sequence

import numpy as np

from training_jobs.messages import Comparison

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

    A paired percentile bootstrap (Efron & Tibshirani 1993, 13.3) over conversations, because the answers of one are
    alike: they are drawn with replacement, and each draw gives the difference of the losses per token.
    """
    units, unit = np.unique(np.asarray(conversations), return_inverse=True)
    differences = np.bincount(unit, np.subtract(adapter, other))
    lengths = np.bincount(unit, tokens)
    drawn = np.random.default_rng(seed).integers(len(units), size=(_DRAWS, len(units)))
    low, high = np.quantile(differences[drawn].sum(axis=1) / lengths[drawn].sum(axis=1), _BOUNDS)
    total = sum(tokens)
    return Comparison(
        conversations=len(units),
        tokens=total,
        loss=sum(other) / total,
        adapter_loss=sum(adapter) / total,
        low=float(low),
        high=float(high),
    )
