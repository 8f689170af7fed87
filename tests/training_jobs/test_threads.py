"""As many threads as there are free cores."""

import threading
import time

import pytest
import torch

from training_jobs.threads import LoadMeter, ThreadChooser, threads_for


@pytest.mark.parametrize(
    ("free", "threads"), [(0.0, 1), (0.4, 1), (1.1, 1), (1.6, 1), (1.75, 2), (2.0, 2), (3.9, 4), (9.0, 4)]
)
def test_threads_for_free_cores(free, threads):
    assert threads_for(free, cores=4) == threads


def test_what_this_process_uses_itself_counts_as_free():
    """Otherwise a training would make itself smaller and smaller."""
    meter = LoadMeter()
    if not meter.works:
        pytest.skip("this system does not tell how busy it is")
    began, before = time.monotonic(), time.process_time()
    stop = began + 0.5
    spin = threading.Thread(target=lambda: [None for _ in iter(lambda: time.monotonic() < stop, False)])
    spin.start()
    spin.join()
    used = (time.process_time() - before) / (time.monotonic() - began)
    assert used / 2 < meter.free_cores() <= meter.cores


def test_the_chooser_sets_torchs_threads_and_looks_again_only_after_a_while():
    before = torch.get_num_threads()
    try:
        chooser = ThreadChooser(every_seconds=60)
        assert 1 <= torch.get_num_threads() <= LoadMeter().cores
        torch.set_num_threads(3)
        chooser.choose()
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
