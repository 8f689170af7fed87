"""What is compared runs in one group, and in slices wherever there is an engine for each."""

import pytest

from benchmarks.figures import FIGURES, ROWS, Case, compared
from benchmarks.kinds import KINDS
from benchmarks.rounds import in_slices

BASE, STOCK, LORA_P, DIREFT_P, DIREFT = (
    Case(kind) for kind in ("base", "lora_stock", "lora_p", "direft_p", "direft")
)


def test_every_case_is_beside_every_reference_on_an_engine_of_its_own():
    assert compared(BASE, LORA_P, DIREFT_P) == ((BASE, LORA_P), (BASE, DIREFT_P))
    assert compared(LORA_P, BASE, DIREFT_P, DIREFT, STOCK) == (
        (BASE, STOCK, LORA_P, DIREFT),
        (BASE, STOCK, DIREFT_P),
    )
    assert compared(BASE, BASE) == ((BASE,),)


@pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES)
def test_every_figure_compares_what_it_measures(figure):
    assert len({case.name for case in figure.cases}) == len(figure.cases)
    for target in figure.targets:
        (group,) = [group for group in figure.groups if {target.of, target.to} <= set(group)]
        engines = {KINDS[case.kind].engine for case in (target.of, target.to)}
        assert in_slices(group) == (len(engines) == 2)


def test_the_papers_figures_have_the_base_and_stock_lora_beside_every_case():
    for name in ("paper-2a", "paper-2b"):
        for group in FIGURES[name].groups:
            base, stock, *ours = group
            assert (base.kind, stock.kind, in_slices(group)) == ("base", "lora_stock", True)
            assert {(case.mix, case.adapters) for case in ours} == {(stock.mix, stock.adapters)}
    assert len(FIGURES["paper-2a"].cases) == 1 + 6 * 4 * 4
    assert len(FIGURES["paper-2b"].cases) == 1 + 5 * 4


def test_the_rows_of_the_targets_have_a_bound_each():
    bounds = {
        (target.row, target.at_least, target.at_most)
        for figure in ROWS.values()
        for target in figure.targets
        if (target.at_least, target.at_most) != (None, None)
    }
    assert len(bounds) == 10
