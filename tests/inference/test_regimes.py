"""Regimes that need an engine of their own: a process each, with a tiny model, every kind of adapter and the base."""

import subprocess
import sys

import pytest

from tests.inference import architectures

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("regime", [name for name in architectures.REGIMES if name])
def test_served_tokens_are_the_references(regime):
    done = subprocess.run(
        [sys.executable, "-m", architectures.__name__, f"llama:{regime}"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "all equal" in done.stdout
