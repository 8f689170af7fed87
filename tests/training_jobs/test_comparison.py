"""Whether one model is better than another on the same targets, and how sure that is."""

import numpy as np
import pytest

from training_jobs.comparison import compare
from training_jobs.messages import FEWEST_CONVERSATIONS, FEWEST_TOKENS, Comparison


def found(differences, *, tokens=None, conversations=None, seed=0) -> Comparison:
    """Of an adapter that is so many nats from another model's 50 on each example; of 20 tokens each."""
    count = len(differences)
    return compare(
        [50 + difference for difference in differences],
        [50.0] * count,
        tokens=tokens or [20] * count,
        conversations=conversations or range(count),
        seed=seed,
    )


def test_losses_are_per_token_and_the_interval_is_of_their_difference():
    both = found([-10, -30] * 8)
    assert (both.tokens, both.conversations) == (320, 16)
    assert both.loss == 2.5
    assert both.adapter_loss == pytest.approx(1.5)
    # The mean of 16 draws of -0.5 and -1.5 has the standard deviation 0.5 / 4.
    assert both.low == pytest.approx(-1 - 1.96 * 0.125, abs=0.05)
    assert both.high == pytest.approx(-1 + 1.96 * 0.125, abs=0.05)


def test_long_answers_count_as_much_as_they_are_long():
    assert found([-100, 0], tokens=[180, 20]).adapter_loss == pytest.approx(0.0)
    assert found([-100, 0], tokens=[180, 20]).loss == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("differences", "worse"),
    [([20.0] * 10, True), ([-20.0] * 10, False), ([30.0, -29.0] * 5, False), ([0.0] * 10, False)],
)
def test_worse_means_beyond_the_interval(differences, worse):
    assert found(differences).worse == worse


def test_answers_of_one_conversation_are_one_witness():
    differences = np.random.default_rng(3).normal(2, 10, 8).repeat(8).tolist()
    alone = found(differences)
    together = found(differences, conversations=[index // 8 for index in range(64)])
    assert together.conversations == 8
    assert together.high - together.low > 2 * (alone.high - alone.low)


def test_the_seed_decides():
    differences = [float(index) for index in range(9)]
    assert found(differences) == found(differences)
    assert found(differences) != found(differences, seed=1)


@pytest.mark.parametrize(
    ("tokens", "conversations", "enough"),
    [
        (FEWEST_TOKENS, FEWEST_CONVERSATIONS, True),
        (FEWEST_TOKENS - 1, FEWEST_CONVERSATIONS, False),
        (FEWEST_TOKENS, FEWEST_CONVERSATIONS - 1, False),
    ],
)
def test_how_little_is_too_little(tokens, conversations, enough):
    figures = {"loss": 1.0, "adapter_loss": 2.0, "low": 0.5, "high": 1.5}
    comparison = Comparison(tokens=tokens, conversations=conversations, **figures)
    assert comparison.enough == enough
    assert comparison.worse == enough
