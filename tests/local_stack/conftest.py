"""These tests start stacks of their own: addresses in the environment would keep them from doing so."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_addresses_given() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("ATTUNE_")]:
            patch.delenv(name)
        yield
