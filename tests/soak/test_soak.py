"""Five kills, one of each kind; `python -m tests.soak` does fifty (docs/reliability.md)."""

import os

import pytest

from tests.soak.faults import KINDS
from tests.soak.run import soak

pytestmark = pytest.mark.slow

#: Child and trainer come first, so that the other parts are killed while their jobs' leases run out.
SEED = 12


def test_killed_at_random_every_job_ends_once(monkeypatch):
    # Or the soak would run on the stores of the other tests.
    for name in [name for name in os.environ if name.startswith("ATTUNE_")]:
        monkeypatch.delenv(name)
    outcome = soak(kills=len(KINDS), seed=SEED, told=lambda kill: print(f"seed {SEED}: {kill}"))
    assert sorted(kill.kind for kill in outcome.kills) == sorted(KINDS)
    assert sum(kill.job is not None for kill in outcome.kills) == 2, "child and trainer had a job in hand"
    assert outcome.problems == []
