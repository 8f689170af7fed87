"""A folder's adapter is asked for by the name of what it holds, once it is known to fit the engine."""

import pytest

from adapters_store.errors import AdapterMissing, WrongBase
from inference.adapter_checks import RankTooHigh
from inference.adapter_request import adapter_request
from inference.build import build_vllm
from tests.adapters_store.adapters import write_adapter
from tests.inference.adapters import random_adapter
from tests.inference.engine import Engine, Question
from tests.inference.reference import Reference

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


def test_an_engine_that_was_built_with_an_adapter_answers_with_it(engine: Engine, reference: Reference):
    assert engine.first_request.lora_name == engine.first.name
    question = Question([5, 17, 1000, 31], engine.first, count=16)
    engine.ask([question])
    assert reference.two_phase(question.prompt, question.answer, engine.first).agrees(question.answer)
    assert not reference.two_phase(question.prompt, question.answer, None).agrees(question.answer)


def test_none_is_built_for_an_adapter_of_another_base(base, tmp_path, monkeypatch):
    def started(*args, **options):
        raise AssertionError("an engine was started")

    monkeypatch.setattr("vllm.LLM", started)
    write_adapter(tmp_path / "other")
    with pytest.raises(WrongBase):
        build_vllm(base, tmp_path / "other")
