"""Lengths and mixes are the paper's, and a seed's prompts do not depend on the adapters."""

import statistics

import numpy as np
import pytest

from benchmarks.workload import MIXES, PROFILES, TURNS, requests_of


def asked(**changes):
    return requests_of(
        **{
            "profile": "punica",
            "mix": "uniform",
            "count": 4000,
            "adapters": 16,
            "max_tokens": 2048,
            "seed": 0,
        }
        | changes
    )


def counts(requests, adapters):
    return np.bincount([request.adapter for request in requests], minlength=adapters)


def test_punicas_lengths():
    requests = asked()
    assert (
        statistics.median(len(request.prompt) for request in requests) == 16
    )  # scale 18, location -1, rounded down
    assert min(token for request in requests[:50] for token in request.prompt) >= 100
    totals = [len(request.prompt) + request.output for request in requests]
    assert abs(statistics.mean(totals) - 1025) < 50
    assert min(request.output for request in requests) == 1


def test_short_outputs_are_as_long_as_their_prompts():
    requests = asked(profile="short", count=2000)
    assert all(request.output == len(request.prompt) for request in requests)
    assert statistics.median(request.output for request in requests) == 16


def test_long_prompts_are_most_of_their_requests():
    assert all(
        len(request.prompt) >= 4 * request.output for request in asked(profile="long-prompt", count=200)
    )


def test_a_chat_has_five_turns():
    for request in asked(profile="chat", count=50, max_tokens=1024):
        assert len(request.later) == TURNS - 1
        assert all(len(message) > output / 2 for message, output in request.later)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("most", [64, 1024])
def test_nothing_is_longer_than_asked(profile, most):
    for request in asked(profile=profile, count=500, max_tokens=most):
        turns = [(request.prompt, request.output), *request.later]
        assert all(message and output >= 1 for message, output in turns)
        assert sum(len(message) + output for message, output in turns) <= most


def test_mixes():
    assert set(counts(asked(mix="identical"), 16)[1:]) == {0}
    assert min(counts(asked(mix="uniform"), 16)) > 190
    skewed = counts(asked(mix="skewed"), 16)
    assert 1.7 < skewed[0] / skewed[1] < 2.3  # Zipf with exponent 1
    assert 3.4 < skewed[0] / skewed[3] < 4.6
    assert set(counts(asked(mix="distinct", count=32), 16)) == {2}


def test_distinct_goes_on_with_the_next_seed():
    first, second = (asked(mix="distinct", count=8, seed=seed) for seed in (0, 1))
    assert {request.adapter for request in first} == set(range(8))
    assert {request.adapter for request in second} == set(range(8, 16))
    assert [request.adapter for request in first] != list(range(8))


def test_one_seed_is_one_workload_whatever_the_mix():
    for mix in MIXES:
        for adapters in (1, 512):
            other = asked(mix=mix, adapters=adapters, count=20)
            assert [(request.prompt, request.output) for request in other] == [
                (request.prompt, request.output) for request in asked(count=20)
            ]
    assert asked(count=9) == asked(count=9)
    assert asked(count=9) != asked(count=9, seed=1)
