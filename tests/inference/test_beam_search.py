"""Beam search puts what was generated into prompts: refused with an adapter that acts on prompts alone."""

import pytest

from adapters_store.errors import AdapterUnsupported
from tests.inference.test_scheduling import name

vllm = pytest.importorskip("vllm")


@pytest.fixture(scope="module")
def searches():
    """Both of vLLM's mixins, without an engine: whatever is not refused finds none."""
    from inference import plugin

    plugin.register()
    plugin.require_active()
    from vllm.entrypoints.generate.beam_search.offline import BeamSearchOfflineMixin
    from vllm.entrypoints.generate.beam_search.online import BeamSearchOnlineMixin

    class Offline(BeamSearchOfflineMixin):
        def __init__(self):
            pass

    class Online(BeamSearchOnlineMixin):
        pass

    return Offline(), Online()


def lora(position):
    from vllm.lora.request import LoRARequest

    return LoRARequest(name(0, position), 1, "/nowhere")


def test_a_prefill_only_adapter_is_refused(searches):
    from vllm.sampling_params import BeamSearchParams

    offline, online = searches
    params = BeamSearchParams(beam_width=2, max_tokens=4)
    for asked in (lora("ap"), [None, lora("aa"), lora("ap")]):
        with pytest.raises(AdapterUnsupported, match="beam search"):
            offline.beam_search([{"prompt_token_ids": [5]}], params, asked)
    with pytest.raises(AdapterUnsupported, match="beam search"):
        online.beam_search({"prompt_token_ids": [5]}, "id", params, lora_request=lora("ap"))


@pytest.mark.parametrize("position", [None, "aa"])
def test_the_base_and_what_acts_everywhere_go_on(searches, position):
    from vllm.sampling_params import BeamSearchParams

    offline, online = searches
    params, asked = BeamSearchParams(beam_width=2, max_tokens=4), position and lora(position)
    with pytest.raises(AttributeError):
        offline.beam_search([{"prompt_token_ids": [5]}], params, asked)
    assert hasattr(online.beam_search({"prompt_token_ids": [5]}, "id", params, asked), "__aiter__")
