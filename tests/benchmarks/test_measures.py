"""The arithmetic from tokens' times to figures."""

import pytest

from benchmarks.measures import measures, paired, spread


def stream(*, prompt=10, turn=0, added=0.0, stamps=(1.0, 1.5), answer=None, arrived=False):
    return {
        "prompt": prompt,
        "turn": turn,
        "arrived": arrived,
        "added": added,
        "stamps": list(stamps),
        "answer": answer or list(range(len(stamps))),
    }


def measured(*streams, seconds=2.0):
    return measures({"seconds": seconds, "read": 0, "streams": list(streams)})


def test_throughput_counts_prompts_and_outputs():
    assert measured(stream(), stream(prompt=6))["throughput"] == (10 + 6 + 2 + 2) / 2


def test_latencies_are_per_token():
    figures = measured(stream(prompt=10, added=0.5, stamps=[1.0, 1.25, 1.75]))
    assert figures["encode_ms"] == [50.0] * 3
    assert figures["decode_ms"] == [375.0] * 3


def test_percentiles_are_over_requests():
    encode = measured(*(stream(prompt=1, stamps=[number / 100]) for number in range(101)))["encode_ms"]
    assert encode == pytest.approx([500, 900, 990])


def test_answers_of_one_token_have_no_decode_latency():
    assert measured(stream(stamps=[1.0]))["decode_ms"] is None


def test_the_last_turn_alone_counts_for_its_first_token():
    chats = [stream(turn=turn, added=turn, stamps=[turn + turn / 10 + 0.1]) for turn in range(5)]
    assert measured(*chats, *chats)["ttft_last_turn"] == pytest.approx(0.5)


def test_gaps_are_those_of_the_streams_that_were_there():
    there = stream(stamps=[1.0, 1.1, 1.2])
    assert measured(there, stream(stamps=[1.0, 9.0], arrived=True))["gap_p99"] == pytest.approx(0.1)
    assert measured(stream(stamps=[1.0]))["gap_p99"] is None


def test_equal_answers_have_equal_numbers():
    first, second = (measured(stream(answer=[1, 2]), stream(answer=other)) for other in ([3, 4], [3, 5]))
    groups = [{"runs": {"ours": first, "stock": second, "again": first}}]
    assert paired(groups, "ours", "stock", "answers") == [0.5]
    assert paired(groups, "ours", "again", "answers") == [1.0]


def test_ratios_are_of_runs_that_went_together():
    # The machine was twice as slow in the last group; pairing takes that out. In the second one ours did not run, in
    # the third the base was beside another one.
    ran = [{"ours": 98, "base": 100}, {"base": 100}, {"base": 70, "other": 60}, {"ours": 50, "base": 50}]
    groups = [{"runs": {name: {"throughput": value} for name, value in runs.items()}} for runs in ran]
    ratios = paired(groups, "ours", "base", "throughput")
    assert ratios == [0.98, 1.0]
    assert spread(ratios) == {"median": 0.99, "least": 0.98, "greatest": 1.0, "count": 2}
