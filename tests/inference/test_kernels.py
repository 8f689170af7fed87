"""The CPU kernels against naive per-token loops."""

import itertools
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from inference import kernels
from inference.kernels import SiteSlots, by_rank
from inference.residual import ResidualStream, add_sites
from inference.segments import NO_SLOT, segments_of

SLOTS, WIDTH_IN = 3, 6
WIDTHS = (5, 2, 2)
mappings = st.lists(st.integers(NO_SLOT, SLOTS - 1), max_size=12)
#: By slot and slice; 0 is nothing there. The kernel takes four ranks at a time.
RANKS = ((3, 3, 3), (0, 2, 0), (8, 5, 1))


def site(seed: int, *, dtype=torch.float32, lay_out=by_rank):
    """What the slots have at a site, and the same as (A, B) by slot and slice, None where there is nothing."""
    generator = torch.Generator().manual_seed(seed)
    pairs = [
        [
            (
                torch.randn(rank, WIDTH_IN, generator=generator).to(dtype),
                torch.randn(width, rank, generator=generator).to(dtype),
            )
            if rank
            else None
            for rank, width in zip(ranks, WIDTHS, strict=True)
        ]
        for ranks in RANKS
    ]
    slots = SiteSlots(SLOTS, WIDTHS)
    for slot, slices in enumerate(pairs):
        slots.put(slot, [pair and pair[0] for pair in slices], [pair and lay_out(pair[1]) for pair in slices])
    return slots, pairs


def naive(y, x, slots, pairs):
    """Token by token, slice by slice."""
    y = y.clone()
    for row, slot in enumerate(slots):
        offset = 0
        for slice_, width in enumerate(WIDTHS):
            if slot != NO_SLOT and (pair := pairs[slot][slice_]) is not None:
                y[row, offset : offset + width] += pair[1] @ (pair[0] @ x[row])
            offset += width
    return y


@settings(deadline=None)
@given(mappings)
def test_segments_say_the_same_as_the_mapping(slots):
    segments = segments_of(slots).tolist()
    said = [NO_SLOT] * len(slots)
    for start, end, slot in segments:
        assert start < end
        assert slot != NO_SLOT
        said[start:end] = [slot] * (end - start)
    assert said == slots
    assert all(a[1] < b[0] or a[2] != b[2] for a, b in itertools.pairwise(segments)), "not merged"


@settings(deadline=None)
@given(mappings, st.integers(0, 5))
def test_every_token_gets_its_own_adapters_update(slots, seed):
    weights, pairs = site(seed)
    x, y = torch.randn(len(slots), WIDTH_IN), torch.randn(len(slots), sum(WIDTHS))
    expected = naive(y, x, slots, pairs)
    weights.add(y, x, segments_of(slots))
    torch.testing.assert_close(y, expected, atol=1e-5, rtol=1e-5)


@settings(deadline=None)
@given(mappings, st.integers(0, 5))
def test_a_bias_is_added_between_the_products(slots, seed):
    generator = torch.Generator().manual_seed(seed)
    parts = [
        [torch.randn(*shape, generator=generator) for shape in ((rank, WIDTH_IN + 1), (WIDTH_IN, rank))]
        for rank in (3, 8, 1)
    ]
    weights = SiteSlots(SLOTS, [WIDTH_IN])
    for slot, (a, b) in enumerate(parts):
        weights.put(slot, [a[:, :WIDTH_IN]], [b], a[:, WIDTH_IN])
    x, y = torch.randn(len(slots), WIDTH_IN), torch.randn(len(slots), WIDTH_IN)
    expected = y.clone()
    for row, slot in enumerate(slots):
        if slot != NO_SLOT:
            a, b = parts[slot]
            expected[row] += b @ (a[:, :WIDTH_IN] @ x[row] + a[:, WIDTH_IN])
    weights.add(y, x, segments_of(slots))
    torch.testing.assert_close(y, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("tokens", [1, 2, 7, 300])
def test_runs_of_any_length(tokens):
    weights, pairs = site(0)
    slots = [2] * tokens + [0] * tokens
    x, y = torch.randn(len(slots), WIDTH_IN), torch.randn(len(slots), sum(WIDTHS))
    expected = naive(y, x, slots, pairs)
    weights.add(y, x, segments_of(slots))
    torch.testing.assert_close(y, expected, atol=1e-5, rtol=1e-5)


def test_a_tokens_update_does_not_depend_on_its_company():
    weights, _ = site(0)
    x = torch.randn(5, WIDTH_IN)
    together, alone = torch.zeros(5, sum(WIDTHS)), torch.zeros(5, sum(WIDTHS))
    weights.add(together, x, segments_of([2] * 5))
    for row in range(5):
        weights.add(alone[row : row + 1], x[row : row + 1], segments_of([2]))
    assert torch.equal(together, alone)


def test_half_precision_and_weights_as_peft_lays_them_out_are_the_same():
    weights, pairs = site(0, dtype=torch.bfloat16, lay_out=lambda b: b)
    slots = [0, 0, 1, 2]
    x, y = torch.randn(4, WIDTH_IN).bfloat16(), torch.randn(4, sum(WIDTHS)).bfloat16()
    in_full = [[pair and (pair[0].float(), pair[1].float()) for pair in slices] for slices in pairs]
    expected = naive(y.float(), x.float(), slots, in_full).bfloat16()
    weights.add(y, x, segments_of(slots))
    torch.testing.assert_close(y, expected, atol=1e-2, rtol=1e-2)


def test_tokens_without_an_adapter_keep_every_bit():
    """The bug of the stock kernels: -1 is the last slot of a stack."""
    weights, _ = site(0)
    x, y = torch.randn(4, WIDTH_IN), torch.randn(4, sum(WIDTHS))
    before = y.clone()
    weights.add(y, x, segments_of([NO_SLOT, 2, NO_SLOT, NO_SLOT]))
    assert torch.equal(y[[0, 2, 3]], before[[0, 2, 3]])
    assert not torch.equal(y[1], before[1])


def test_a_slot_that_was_cleared_adds_nothing_and_lets_go_of_its_adapter():
    slots = SiteSlots(1, [2])
    a, b = torch.ones(1, 3), by_rank(torch.ones(2, 1))
    slots.put(0, [a], [b], torch.ones(1))
    holders = sys.getrefcount(a)
    slots.clear(0)
    assert sys.getrefcount(a) == holders - 1
    y = torch.zeros(1, 2)
    slots.add(y, torch.ones(1, 3), segments_of([0]))
    assert not y.any()


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
    assert len(segments_of(slots)) == 0


def test_a_single_row_is_as_long_as_it_is_wide_whatever_torch_says_of_its_stride():
    """B of rank 1 as vLLM packs it: its rows are one number apart for torch, and nothing is read beyond them."""
    a, b = torch.randn(1, WIDTH_IN), torch.randn(WIDTHS[0], 1)
    assert b.T.stride(0) == 1
    slots = SiteSlots(1, WIDTHS[:1])
    slots.put(0, [a], [b])
    assert slots.table[0, 0, [1, 3]].tolist() == [WIDTH_IN, WIDTHS[0]]


def test_after_the_warm_up_a_step_compiles_nothing():
    kernels.warm_up()
    compiled = kernels._add.signatures
    slots, _ = site(1)
    slots.add(torch.zeros(4, sum(WIDTHS)), torch.zeros(4, WIDTH_IN), segments_of([0, 0, 1, NO_SLOT]))
    assert kernels._add.signatures == compiled
