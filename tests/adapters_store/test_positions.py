import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from adapters_store.preft.positions import adapted, adapted_count

SIZES = st.integers(0, 40)


@given(SIZES, SIZES, SIZES)
def test_the_count_is_the_number_of_adapted_positions(start, length, prompt_length):
    end = start + length
    mask = adapted(np.arange(start, end), prompt_length)
    assert adapted_count(start, end, prompt_length) == mask.sum()
    assert (
        not np.diff(mask.astype(int)).any() or np.diff(mask.astype(int)).min() == -1
    )  # ones first, then zeros


def test_the_same_rule_on_ints_numpy_and_torch():
    assert (adapted(3, 4), adapted(4, 4)) == (True, False)
    lengths = [1, 4]
    expected = [[True, False, False], [True, True, True]]
    assert adapted(np.arange(3), np.array(lengths)[:, None]).tolist() == expected
    assert adapted(torch.arange(3), torch.tensor(lengths)[:, None]).tolist() == expected
