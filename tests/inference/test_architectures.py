"""What the catalogue takes is what the engine serves."""

from adapters_store.architectures import ARCHITECTURES
from inference.engine_checks import LAYERS


def test_one_table() -> None:
    assert sorted(ARCHITECTURES) == sorted(LAYERS)
