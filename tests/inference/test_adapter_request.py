"""A folder's adapter is asked for by the name of what it holds, once it is known to fit the engine."""

import pytest

from adapters_store.errors import AdapterMissing, WrongBase
from inference.adapter_checks import RankTooHigh
from inference.adapter_request import adapter_request
from tests.adapters_store.adapters import write_adapter
from tests.inference.adapters import random_adapter
from tests.inference.engine import Engine

pytestmark = pytest.mark.engine


def test_what_fits_is_asked_for_by_name(engine: Engine, base, tmp_path):
    adapter = random_adapter(tmp_path / "me", base=base, method="direft", position="prefill", seed=3)
    for folder in (adapter.folder, str(adapter.folder)):
        request = adapter_request(engine.llm, folder, adapter_id=7)
        assert (request.lora_name, request.lora_int_id) == (adapter.name, 7)
        assert request.lora_path == str(adapter.folder)


def test_what_does_not_fit_never_gets_near_the_engine(engine: Engine, base, tmp_path):
    with pytest.raises(AdapterMissing):
        adapter_request(engine.llm, tmp_path, adapter_id=7)
    write_adapter(tmp_path / "other")
    with pytest.raises(WrongBase, match="tiny"):
        adapter_request(engine.llm, tmp_path / "other", adapter_id=7)
    random_adapter(tmp_path / "wide", base=base, method="direft", position="prefill", seed=3, rank=32)
    with pytest.raises(RankTooHigh, match=r"rank 32.*up to 16"):
        adapter_request(engine.llm, tmp_path / "wide", adapter_id=7)
