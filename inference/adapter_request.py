"""How one asks vLLM's LLM for the adapter in a folder: by the name that its contents have, checked against the base."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from adapters_store.weights import manifest_read
from inference import plugin
from inference.adapter_checks import ServedBase, check_servable, model_folder, served_base

if TYPE_CHECKING:
    from vllm import LLM
    from vllm.lora.request import LoRARequest


def adapter_request(llm: "LLM", folder: str | Path, *, adapter_id: int) -> "LoRARequest":
    """A request for the adapter in `folder`, which has to stay there; each adapter has an id of its own, from 1.

    Raises PluginInactive, and AdapterError: adapter_not_found, adapter_corrupt, adapter_wrong_base,
    adapter_rank_too_high.
    """
    return request_for(folder, base_of(llm), adapter_id=adapter_id)


def request_for(folder: str | Path, base: ServedBase, *, adapter_id: int) -> "LoRARequest":
    """As `adapter_request`, for an engine that is not there yet."""
    from vllm.lora.request import LoRARequest

    plugin.require_active()
    manifest = manifest_read(Path(folder))
    check_servable(manifest, base)
    return LoRARequest(manifest.name, adapter_id, str(Path(folder).resolve()))


def base_of(llm: "LLM") -> ServedBase:
    """What an engine in Python serves."""
    config = llm.llm_engine.vllm_config
    return base_to_serve(config.model_config.model, config.lora_config.max_lora_rank)


@cache
def base_to_serve(model: str, max_rank: int) -> ServedBase:
    """What an engine of this model and rank is going to serve; reading the weights takes a while the first time."""
    return served_base(model_folder(model), max_rank=max_rank)
