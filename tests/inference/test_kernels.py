"""The CPU kernels against naive per-token loops."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.kernels import NO_SLOT, add_lora, add_residual, segments_of, slot_weights
from inference.residual import ResidualStream, add_sites

SLOTS, MAX_RANK, WIDTH_IN = 3, 4, 6
WIDTHS = (5, 2, 2)
mappings = st.lists(st.integers(NO_SLOT, SLOTS - 1), max_size=12)


RANKS = ((3, 3, 3), (0, 2, 0), (MAX_RANK,) * 3)


def stacks(seed: int):
    """Stacks of three slices; slot 0 has rank 3, slot 1 has the second slice alone, slot 2 is full."""
    generator = torch.Generator().manual_seed(seed)
    stacked_a = [torch.randn(SLOTS, 1, MAX_RANK, WIDTH_IN, generator=generator) for _ in WIDTHS]
    stacked_b = [torch.randn(SLOTS, 1, width, MAX_RANK, generator=generator) for width in WIDTHS]
    return stacked_a, stacked_b


def laid_out(stacked_a, stacked_b):
    return [
        slot_weights(
            [a[slot, 0, :rank] if rank else None for a, rank in zip(stacked_a, ranks, strict=True)],
            [b[slot, 0, :, :rank] if rank else None for b, rank in zip(stacked_b, ranks, strict=True)],
            WIDTHS,
        )
        for slot, ranks in enumerate(RANKS)
    ]


@settings(deadline=None)
@given(mappings)
def test_segments_say_the_same_as_the_mapping(slots):
    segments = segments_of(slots)
    said = [NO_SLOT] * len(slots)
    for start, end, slot in segments:
        assert start < end
        assert slot != NO_SLOT
        said[start:end] = [slot] * (end - start)
    assert said == slots
    assert all(a[1] < b[0] or a[2] != b[2] for a, b in itertools.pairwise(segments)), "not merged"


@settings(deadline=None)
@given(mappings, st.integers(0, 5))
def test_add_lora_is_the_sum_over_each_tokens_own_adapter(slots, seed):
    stacked_a, stacked_b = stacks(seed)
    x, y = torch.randn(len(slots), WIDTH_IN), torch.randn(len(slots), sum(WIDTHS))
    expected = y.clone()
    for row, slot in enumerate(slots):
        offset = 0
        for a, b, width, rank in zip(
            stacked_a, stacked_b, WIDTHS, RANKS[slot] if slot != NO_SLOT else (0,) * 3, strict=True
        ):
            expected[row, offset : offset + width] += b[slot, 0, :, :rank] @ (a[slot, 0, :rank] @ x[row])
            offset += width
    add_lora(y, x, laid_out(stacked_a, stacked_b), segments_of(slots))
    torch.testing.assert_close(y, expected, atol=1e-5, rtol=1e-5)


@settings(deadline=None)
@given(mappings, st.integers(0, 5))
def test_add_residual_is_the_formula_on_adapted_rows(slots, seed):
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(SLOTS, 1, MAX_RANK, WIDTH_IN, generator=generator)
    b = torch.randn(SLOTS, 1, WIDTH_IN, MAX_RANK, generator=generator)
    bias = torch.randn(SLOTS, MAX_RANK, generator=generator)
    ranks = (3, 0, MAX_RANK)
    weights = [
        slot_weights([a[slot, 0, :rank]], [b[slot, 0, :, :rank]], [WIDTH_IN], bias[slot, :rank])
        if rank
        else None
        for slot, rank in enumerate(ranks)
    ]
    hidden, residual = torch.randn(len(slots), WIDTH_IN), torch.randn(len(slots), WIDTH_IN)
    expected = hidden.clone()
    for row, slot in enumerate(slots):
        rank = ranks[slot] if slot != NO_SLOT else 0
        low = a[slot, 0, :rank] @ (hidden[row] + residual[row]) + bias[slot, :rank]
        expected[row] += b[slot, 0, :, :rank] @ low
    add_residual(hidden, residual, weights, segments_of(slots))
    torch.testing.assert_close(hidden, expected, atol=1e-5, rtol=1e-5)


def test_tokens_without_an_adapter_keep_every_bit():
    """The bug of the stock kernels: -1 is the last slot of a stack."""
    stacked_a, stacked_b = stacks(0)
    x, y = torch.randn(4, WIDTH_IN), torch.randn(4, sum(WIDTHS))
    before = y.clone()
    add_lora(y, x, laid_out(stacked_a, stacked_b), segments_of([NO_SLOT, 2, NO_SLOT, NO_SLOT]))
    assert torch.equal(y[[0, 2, 3]], before[[0, 2, 3]])
    assert not torch.equal(y[1], before[1])


def test_an_adapter_with_nothing_at_a_site_is_known_as_such():
    assert slot_weights([None] * 3, [None] * 3, WIDTHS) is None


class Layer(torch.nn.Module):
    def forward(self, positions, hidden, residual):
        return hidden * 2, residual + 1


class OtherLayer(torch.nn.Module):
    pass


def test_every_decoder_layer_gets_a_site_and_only_those():
    layers = torch.nn.ModuleList([Layer(), OtherLayer(), Layer()])
    assert add_sites(layers, layer_type=Layer, width=3, device=torch.device("cpu")) == 2
    assert isinstance(layers[0], Layer)
    assert isinstance(layers[0].residual_stream, ResidualStream)
    assert type(layers[1]) is OtherLayer
    hidden, residual = layers[0](None, torch.ones(2, 3), torch.ones(2, 3))
    assert torch.equal(hidden, torch.full((2, 3), 2.0))
    assert torch.equal(residual, torch.full((2, 3), 2.0))


@pytest.mark.parametrize("slots", [[], [NO_SLOT], [NO_SLOT] * 5])
def test_nothing_adapted_is_no_work_at_all(slots):
    assert segments_of(slots) == []
