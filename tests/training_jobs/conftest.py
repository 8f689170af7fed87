"""Tiny tensors are fastest on one thread, most of all on a busy machine."""

from pathlib import Path

import pytest
import torch

from training_jobs import threads

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch, request):
    """As on a system that does not tell how busy it is: training leaves the number of threads alone."""
    if "threads" not in request.module.__name__:
        monkeypatch.setattr(threads, "_STAT", Path("/nonexistent"))
