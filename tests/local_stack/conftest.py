"""These tests start stacks of their own: addresses in the environment would keep them from doing so."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_addresses_given() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("ATTUNE_")]:
            patch.delenv(name)
        yield


@pytest.fixture
def public(no_addresses_given: None) -> Iterator[Path]:
    """A data folder; pytest's own lie where PostgreSQL's user cannot reach them when root runs the tests."""
    yield from public_folder()


@pytest.fixture(scope="module")
def public_for_module(no_addresses_given: None) -> Iterator[Path]:
    yield from public_folder()


def public_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="attune-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
