"""The task itself, in a process of its own: the Celery app reads the environment where it is imported."""

import subprocess
import sys
from pathlib import Path

import pytest

from local_stack.home import ROOT

pytestmark = pytest.mark.slow

CANARY = "zanzibar"
BROKEN = f"""
from training_jobs import tasks

def runner():
    raise ValueError("a row says {CANARY[::-1]}"[::-1])

tasks._runner = runner
tasks.train.apply(kwargs={{"jobs": {{"job-one": "token"}}}})
"""


def test_an_unexpected_fault_is_logged_by_type_and_place_alone(tmp_path: Path):
    """Celery's own line has the text; none of it may quote what people wrote."""
    env = {
        "PATH": "/usr/bin:/bin",
        "ATTUNE_BROKER_URL": "redis://localhost",
        "ATTUNE_WEB_URL": "http://localhost",
        "ATTUNE_TRAINER_TOKEN": "t" * 32,
        "ATTUNE_MODELS_DIR": str(tmp_path),
        "ATTUNE_WORK_DIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", BROKEN], cwd=ROOT, env=env, capture_output=True, text=True, check=True
    )
    assert CANARY not in done.stderr
    assert "jobs job-one ended by an unexpected error" in done.stderr
    assert done.stderr.rstrip().endswith("builtins.ValueError")
