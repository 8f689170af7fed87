"""Folders with somebody's data while a process works on it: gone with the work or, if that is killed, with the next."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Nothing else in the folder is ours to remove.
_PREFIX = "attune-scratch-"


@contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """A private folder below `parent`, locked by this process, and removed at the block's end."""
    scratch_clear(parent)
    folder, lock = _made(parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def scratch_clear(parent: Path) -> None:
    """Remove what killed processes left. Several may share `parent`: what is locked belongs to a living one."""
    for folder in parent.glob(f"{_PREFIX}*"):
        lock = _locked(folder)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _made(parent: Path) -> tuple[Path, int]:
    """A new folder and its lock. Between the two another process may clear it away: then there is another."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        lock = _locked(folder)
        if lock is not None and folder.exists():
            return folder, lock
        if lock is not None:
            os.close(lock)


def _locked(folder: Path) -> int | None:
    """A descriptor that holds the folder's lock while this process lives; None if another has it, or it is gone."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
