"""Regimes that need an engine of their own: a process each, with a tiny model, every kind of adapter and the base.

Each is another architecture than the one that test_parity has: what is proven of those by hand, here is of these two.
"""

import subprocess
import sys

import pytest

from tests.inference import architectures

pytestmark = pytest.mark.engine


#: Gemma's widths, norms and embeddings are its own; Qwen2's q, k and v have a bias, of which each process has half.
CASES = ["gemma:ngram", "qwen2:tensor-parallel"]


@pytest.mark.parametrize("case", CASES)
def test_served_tokens_are_the_references(case):
    done = subprocess.run(
        [sys.executable, "-m", architectures.__name__, case], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "all equal" in done.stdout


def test_every_regime_is_run():
    assert {case.partition(":")[2] for case in CASES} == set(architectures.REGIMES) - {""}
