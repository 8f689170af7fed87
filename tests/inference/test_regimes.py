"""Regimes that need an engine of their own: a process each, with a tiny model, every kind of adapter and the base.

One is another architecture than test_parity's, of which every test run proves so what is proven by hand of the others.
"""

import subprocess
import sys

import pytest

from tests.inference import architectures

pytestmark = pytest.mark.engine


#: Qwen2's q, k and v have a bias, of which each process has half.
CASES = ["llama:ngram", "qwen2:tensor-parallel"]


@pytest.mark.parametrize("case", CASES)
def test_served_tokens_are_the_references(case):
    done = subprocess.run(
        [sys.executable, "-m", architectures.__name__, case], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "all equal" in done.stdout


def test_every_regime_is_run():
    assert {case.partition(":")[2] for case in CASES} == set(architectures.REGIMES) - {""}
