"""What a process at work has on disk, and what a killed one leaves there."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from adapters_store.scratch import scratch, scratch_clear

HOLD = """
import sys, time
from pathlib import Path
from adapters_store.scratch import scratch
with scratch(Path(sys.argv[1])) as folder:
    (folder / "conversations.jsonl").write_text("private")
    print(folder, flush=True)
    time.sleep(600)
"""
ROOT = Path(__file__).parents[2]


def test_it_goes_with_the_work(tmp_path):
    with scratch(tmp_path) as folder:
        (folder / "conversations.jsonl").write_text("private")
        assert folder.stat().st_mode & 0o77 == 0
    assert not list(tmp_path.iterdir())


def test_a_killed_processes_folder_goes_with_the_next_one_and_a_living_ones_stays(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as other:
        theirs = Path(other.stdout.readline().strip())
        with scratch(tmp_path) as ours:
            assert sorted(tmp_path.iterdir()) == sorted([theirs, ours])
        os.kill(other.pid, signal.SIGKILL)
    with scratch(tmp_path) as ours:
        assert list(tmp_path.iterdir()) == [ours]


def test_what_is_not_ours_is_left_alone(tmp_path):
    (tmp_path / "somebodys").mkdir()
    (tmp_path / "attune-scratch-link").symlink_to(tmp_path / "somebodys")
    scratch_clear(tmp_path)
    assert (tmp_path / "somebodys").is_dir()
