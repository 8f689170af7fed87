"""The rule, token by token, against a loop that says it in words."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.phase import NO_ADAPTER, active, position_of, prefill_only, token_adapters

DIGEST = "0123456789abcdef" * 4

#: One request of a step: adapter id, acts on prompts alone, prompt length, first position, tokens, sampled.
request = st.tuples(
    st.integers(0, 3),
    st.booleans(),
    st.integers(1, 12),
    st.integers(0, 20),
    st.integers(1, 9),
    st.integers(0, 9),
).map(lambda r: (*r[:5], min(r[4], r[5])))


#: With the dtypes of vLLM's own arrays: "no limit" must not wrap around in them.
COLUMNS = {
    "adapters": np.int64,
    "prefill_only": np.bool_,
    "prompt_lengths": np.int32,
    "starts": np.int32,
    "scheduled": np.int32,
    "sampled": np.int32,
}


def mapped(requests):
    columns = zip(COLUMNS.items(), zip(*requests, strict=True), strict=True)
    return token_adapters(**{name: np.array(values, dtype) for (name, dtype), values in columns})


@settings(deadline=None)
@given(st.lists(request, min_size=1, max_size=6))
def test_every_token_of_every_schedule_follows_the_rule(requests):
    tokens, samples = [], []
    for adapter, prompts_only, prompt, start, scheduled, sampled in requests:
        of_request = [
            adapter if not prompts_only or position < prompt else NO_ADAPTER
            for position in range(start, start + scheduled)
        ]
        tokens += of_request
        samples += of_request[len(of_request) - sampled :]
    got_tokens, got_samples = mapped(requests)
    assert got_tokens.tolist() == tokens
    assert got_samples.tolist() == samples


def test_a_one_token_prompt_is_adapted_and_its_first_answer_token_is_not():
    assert mapped([(7, True, 1, 0, 1, 1)])[0].tolist() == [7]
    assert mapped([(7, True, 1, 1, 1, 1)])[0].tolist() == [0]


def test_the_last_prompt_token_alone_in_a_step_is_adapted():
    """A prefix hit can leave one token: it looks like a decode and is not one."""
    assert mapped([(7, True, 300, 299, 1, 1)])[0].tolist() == [7]


def test_a_preempted_request_recomputes_its_own_answer_without_the_adapter():
    tokens, samples = mapped([(7, True, 3, 0, 6, 1)])
    assert tokens.tolist() == [7, 7, 7, 0, 0, 0]
    assert samples.tolist() == [0]


def test_drafted_tokens_are_sampled_at_their_own_positions():
    tokens, samples = mapped([(7, True, 4, 2, 4, 3)])
    assert tokens.tolist() == [7, 7, 0, 0]
    assert samples.tolist() == [7, 0, 0]


def test_active_adapters_come_from_tokens():
    tokens, samples = mapped(
        [(1, True, 4, 4, 1, 1), (2, False, 4, 9, 1, 1), (3, True, 9, 0, 4, 1), (0, False, 2, 0, 2, 1)]
    )
    assert active(tokens, samples) == {2, 3}


def test_no_adapter_at_all():
    tokens, samples = mapped([(0, False, 5, 0, 5, 1), (0, False, 1, 3, 1, 1)])
    assert (tokens.tolist(), samples.tolist()) == ([0] * 6, [0, 0])
    assert active(tokens, samples) == set()


def test_position_is_read_from_the_name():
    assert position_of(f"ap-{DIGEST}") == "prefill"
    assert position_of(f"{'a' * 32}/ap-{DIGEST}") == "prefill"
    assert position_of(f"aa-{DIGEST}") == "all"
    for ordinary in ("sql-lora", "ap-short", f"ap-{DIGEST}x", f"x/ap-{DIGEST}", ""):
        assert position_of(ordinary) == "all"


def test_prefill_only_marks_requests_by_their_adapter():
    assert prefill_only(np.array([0, 5, 6, 5]), [5]).tolist() == [False, True, False, True]
    assert prefill_only(np.array([0, 5]), []).tolist() == [False, False]
