"""The benchmark's shares and its pairs of steps; the figures are for quiet machines."""

import pytest

from benchmarks.packing import measured, padding, random_rows
from tests.training_jobs.adapters import PREFILL, disturbed
from tests.training_jobs.tiny import tiny_model


def test_the_share_of_padding():
    assert padding([10, 10, 10, 10], 2) == 0
    assert padding([10, 30], 2) == pytest.approx(20 / 60)
    assert padding([10, 30], 1) == 0


def test_a_line_has_both_layouts_of_one_batch():
    rows = random_rows((12, 40))
    for row in rows:
        row.tokens[:] %= 259
    line = measured(disturbed(tiny_model(), PREFILL[1]), rows, rounds=2, pad=2)
    lengths, share, seconds, ratio, chosen = (cell.strip() for cell in line.strip("|").split("|"))
    assert (lengths, share, chosen) == ("12, 40", "35%", "packed")
    assert float(seconds) >= 0
    assert "to" in ratio
