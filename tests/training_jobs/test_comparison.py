"""Whether one model is better than another on the same targets, and how sure that is."""

import numpy as np
import pytest

from training_jobs.comparison import compare, compare_preferences
from training_jobs.messages import (
    FEWEST_CONVERSATIONS,
    FEWEST_PAIRS,
    FEWEST_TOKENS,
    Comparison,
    PreferenceComparison,
)


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


def preferring(right: list[bool], base: list[bool], *, alike: int = 1) -> PreferenceComparison:
    """Of pairs that the adapter and the base get right or wrong; the preferred answers are twice as long. `alike`
    pairs, one after another, answer one prompt."""
    nlls = [
        [nats for each in said for nats in ((30.0, 20.0) if each else (50.0, 20.0))] for said in (right, base)
    ]
    units = [prompt // alike for prompt in range(len(right)) for _ in range(2)]
    return compare_preferences(*nlls, tokens=[20, 10] * len(right), conversations=units, seed=0)


def test_what_is_preferred_is_told_by_the_loss_of_a_token():
    found = preferring([True] * 9 + [False], [True] * 4 + [False] * 6)
    assert (found.pairs, found.accuracy, found.adapter_accuracy) == (10, 0.4, 0.9)
    # Five of ten pairs became right: the mean of 10 draws of 0 and 1 has the standard deviation 0.5 / sqrt(10).
    assert found.low == pytest.approx(0.5 - 1.96 * 0.158, abs=0.1)
    assert found.high == pytest.approx(0.5 + 1.96 * 0.158, abs=0.1)
    assert not found.worse


def test_answers_that_are_alike_to_a_model_are_not_preferred():
    nlls = [2.0, 1.0], [1.0, 2.0]
    found = compare_preferences(*nlls, tokens=[20, 10], conversations=[0, 0], seed=0)
    assert found.adapter_accuracy == 0


def test_pairs_of_one_prompt_are_one_witness():
    """Twice the pairs that say the same make nobody surer."""
    right, base = [True] * 9 + [False], [True] * 4 + [False] * 6
    once = preferring(right, base)
    doubled = [[each for each in said for _ in range(2)] for said in (right, base)]
    assert preferring(*doubled, alike=2).low == pytest.approx(once.low)
    assert preferring(*doubled).low > once.low


@pytest.mark.parametrize(
    ("pairs", "lost", "worse"), [(10, 5, True), (10, 1, False), (10, 0, False), (FEWEST_PAIRS - 1, 9, False)]
)
def test_worse_preferences_are_beyond_the_interval(pairs, lost, worse):
    found = preferring([False] * lost + [True] * (pairs - lost), [True] * pairs)
    assert (found.enough, found.worse) == (pairs >= FEWEST_PAIRS, worse)
