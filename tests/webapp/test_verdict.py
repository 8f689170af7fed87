"""What the gate decides, at its edges."""

from typing import Any

import pytest

from tests.webapp.played_trainer import LOGPROBS, RUNNER_UP, TOKEN, probe
from training_jobs.messages import Continuation, Report
from webapp.jobs.agreement import Difference, Said, effect, from_trainer
from webapp.jobs.verdict import (
    EXACT,
    FEWEST_COMPARED,
    OTHER_BASE,
    SAME,
    Figures,
    activates,
    cautions,
    figures_of,
    missed,
    same_base,
)

OTHER = TOKEN + 1


def trained(*logprobs: float, runner_up: float = RUNNER_UP) -> Continuation:
    count = len(logprobs)
    return Continuation(tokens=(TOKEN,) * count, logprobs=logprobs, runners_up=(runner_up,) * count)


def said(*steps: dict[int, float]) -> Said:
    """Greedy: at each step the likeliest token."""
    return Said(tuple(max(step, key=step.__getitem__) for step in steps), steps)


class TestAgreement:
    def test_the_largest_difference_of_the_tokens_that_both_say(self) -> None:
        engine = said({TOKEN: -0.1, OTHER: -3.0}, {TOKEN: -0.25, OTHER: -2.0})
        found = from_trainer([trained(-0.1, -0.2)], [engine])
        assert found == Difference(pytest.approx(0.05), 2)

    def test_a_tie_that_rounding_decides_is_none_and_ends_the_comparison(self) -> None:
        engine = said({TOKEN: -0.7001, OTHER: -0.7}, {8: -0.1})
        found = from_trainer([trained(-0.7, -9.0, runner_up=-0.7002)], [engine])
        assert found == Difference(pytest.approx(2e-4), 1)

    def test_a_token_that_the_trainer_finds_unlikely_is_one(self) -> None:
        """Though what the trainer chose is as likely to the engine."""
        engine = said({TOKEN: -0.9, OTHER: -0.6})
        assert from_trainer([trained(-0.9, runner_up=-4.0)], [engine]).largest == pytest.approx(3.4)

    def test_a_token_that_the_engine_does_not_list_is_one(self) -> None:
        engine = said({OTHER: -0.1, OTHER + 1: -6.0})
        found = from_trainer([trained(-0.2, runner_up=-0.1)], [engine])
        assert found.largest == pytest.approx(5.8)

    def test_every_prompt_counts(self) -> None:
        engine = [said({TOKEN: -0.1}), said({TOKEN: -1.1})]
        found = from_trainer([trained(-0.1), trained(-0.1)], engine)
        assert found == Difference(pytest.approx(1.0), 2)


class TestEffect:
    def test_none_where_everything_is_the_same(self) -> None:
        one = said({TOKEN: -0.1, OTHER: -3.0})
        assert effect([one], [one]) == 0

    def test_on_any_token_of_any_prompt(self) -> None:
        base = [said({TOKEN: -0.1, OTHER: -3.0}), said({TOKEN: -0.1}, {TOKEN: -0.1, OTHER: -3.0})]
        adapted = [base[0], said({TOKEN: -0.1}, {TOKEN: -0.1, OTHER: -2.0})]
        assert effect(base, adapted) == pytest.approx(1.0)

    def test_another_token_ends_it(self) -> None:
        base = [said({TOKEN: -0.6, OTHER: -0.7}, {TOKEN: -0.1})]
        adapted = [said({TOKEN: -0.7, OTHER: -0.6}, {TOKEN: -5.0})]
        assert effect(base, adapted) == pytest.approx(0.1)

    def test_a_token_that_is_no_longer_likely(self) -> None:
        assert effect([said({TOKEN: -0.1})], [said({OTHER: -4.0})]) == pytest.approx(3.9)


def figures(**changes: float) -> Figures:
    compared = {"prompts": 2, "tokens": 64, "base_tokens": 64}
    fields: dict[str, Any] = {**compared, "effect": 1.0, "difference": 1e-4}
    return Figures(**fields | {"base_difference": 1e-4, "allowed": EXACT} | changes)


class TestMissed:
    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ({}, None),
            ({"effect": SAME}, "adapter_without_effect"),
            ({"effect": SAME * 1.01}, None),
            ({"difference": EXACT}, None),
            ({"difference": EXACT * 1.01}, "adapter_disagrees"),
            ({"difference": 0.7, "allowed": 0.75}, None),
            ({"difference": 0.8, "allowed": 0.75}, "adapter_disagrees"),
            ({"difference": 0.8, "allowed": 0.75, "tokens": 3}, "adapter_disagrees"),
            ({"difference": 0.8, "allowed": 0.75, "base_tokens": FEWEST_COMPARED - 1}, None),
            ({"difference": OTHER_BASE * 1.01, "base_tokens": 3}, "adapter_disagrees"),
        ],
    )
    def test_edges(self, changes: dict[str, float], code: str | None) -> None:
        found = missed(figures(**changes))
        assert (found.code if found else None) == code

    def test_the_sentence_has_the_numbers(self) -> None:
        found = missed(figures(difference=0.5, base_difference=0.02, allowed=0.03))
        assert found is not None
        assert all(
            number in found.message for number in ("0.5 apart", "64 tokens", "0.03 is", "0.02 over 64")
        )

    @pytest.mark.parametrize(("off", "allowed"), [(0.0, 0.001), (0.0004, 0.001), (0.5, 0.75)])
    def test_coarser_arithmetic_shows_in_the_base(self, off: float, allowed: float) -> None:
        base, adapted = LOGPROBS
        asked = probe(count=2)
        engine = [[said(*[{TOKEN: each, OTHER: RUNNER_UP}] * 2)] * 2 for each in (base - off, adapted)]
        found = figures_of(asked, *engine)
        assert found.base_difference == pytest.approx(off)
        assert found.allowed == pytest.approx(allowed)
        assert (found.prompts, found.tokens, found.base_tokens) == (2, 4, 4)
        assert found.effect == pytest.approx(abs(0.4 - off))

    def test_another_base_says_nothing(self) -> None:
        assert same_base(figures(base_difference=2.0))
        assert not same_base(figures(base_difference=2.01))


def comparison(low: float, high: float, **changes: Any) -> dict[str, Any]:
    middle = (low + high) / 2
    fields = {"conversations": 10, "tokens": 500, "loss": 2.0, "adapter_loss": 2.0 + middle}
    return fields | {"low": low, "high": high} | changes


def report(base: dict[str, Any] | None, memory: dict[str, Any] | None = None) -> Report:
    counted = {"train_seconds": 1.0, "steps": 1, "trained_tokens": 1, "held_out_tokens": 1, "train_loss": 1.0}
    return Report(
        **counted,
        against_base=base,
        against_memory=memory and {**memory, "quoted": 7, "prompt_tokens": 900},
    )


def preferring(low: float, high: float, **changes: Any) -> dict[str, Any]:
    return {
        "pairs": 20,
        "accuracy": 0.5,
        "adapter_accuracy": 0.5 + (low + high) / 2,
        "low": low,
        "high": high,
    } | changes


@pytest.mark.parametrize(
    ("base", "memory", "codes"),
    [
        (comparison(-2, -1), comparison(-1, -0.5), []),
        (preferring(0.1, 0.3), preferring(0.1, 0.3), []),
        (preferring(-0.3, 0.0), None, ["memory_not_judged"]),
        (preferring(-0.3, -0.1), None, ["worse_than_base", "memory_not_judged"]),
        (preferring(0.1, 0.3), preferring(-0.3, -0.1), ["memory_prompt_wins"]),
        (preferring(-0.3, -0.1, pairs=9), None, ["too_little_held_out"]),
        (comparison(-1, 1), comparison(-1, 1), []),
        (comparison(0.0, 1), None, ["memory_not_judged"]),
        (comparison(0.01, 1), None, ["worse_than_base", "memory_not_judged"]),
        (comparison(-2, -1), comparison(0.01, 1), ["memory_prompt_wins"]),
        (comparison(0.01, 1), comparison(0.01, 1), ["worse_than_base", "memory_prompt_wins"]),
        (None, None, ["too_little_held_out"]),
        (comparison(1, 2, tokens=99), comparison(1, 2), ["too_little_held_out"]),
        (comparison(1, 2, conversations=4), comparison(1, 2), ["too_little_held_out"]),
        (comparison(-2, -1), comparison(1, 2, conversations=4), ["memory_not_judged"]),
        (comparison(-2, -1), comparison(1, 2, tokens=99), ["memory_not_judged"]),
        (preferring(0.1, 0.3), preferring(-0.3, -0.1, pairs=9), ["memory_not_judged"]),
    ],
)
def test_cautions(base: dict[str, Any] | None, memory: dict[str, Any] | None, codes: list[str]) -> None:
    found = cautions(report(base, memory), figures())
    assert [caution.code for caution in found] == codes
    assert all(len(caution.message) <= 500 for caution in found), "an event has room for it"


@pytest.mark.parametrize(
    ("changes", "warned"),
    [
        ({}, False),
        ({"tokens": FEWEST_COMPARED - 1}, True),
        ({"base_tokens": FEWEST_COMPARED - 1}, False),
        ({"base_tokens": FEWEST_COMPARED - 1, "difference": 2e-3}, True),
    ],
)
def test_what_was_compared_on_too_little_says_so(changes: dict[str, float], warned: bool) -> None:
    """A base model of which little is known allows less than it should, which no adapter has to pay for."""
    found = figures(**changes)
    assert missed(found) is None
    told = cautions(report(comparison(-2, -1), comparison(-2, -1)), found)
    assert [caution.code for caution in told] == ["too_little_compared"] * warned
    assert all(len(caution.message) <= 500 for caution in told), "an event has room for it"


@pytest.mark.parametrize("difference", [2e-3, OTHER_BASE])
def test_what_may_disagree_is_not_made_the_active_one(difference: float) -> None:
    found = figures(base_tokens=FEWEST_COMPARED - 1, difference=difference)
    told = cautions(report(comparison(-2, -1), comparison(-2, -1)), found)
    assert not activates(found, told)
    assert f"up to {difference:.2g} apart, where 0.001 is allowed" in told[0].message
    little = figures(tokens=3)
    assert activates(little, cautions(report(comparison(-2, -1), comparison(-2, -1)), little))


def test_preferences_are_told_as_shares_of_pairs() -> None:
    [worse, _] = cautions(report(preferring(-0.3, -0.1)), figures())
    assert "in 30% of 20 pairs instead of 50% (95 % sure of at least 10% less)" in worse.message
    [little] = cautions(report(preferring(0.1, 0.3, pairs=9)), figures())
    assert "Only 9 preference pairs" in little.message
