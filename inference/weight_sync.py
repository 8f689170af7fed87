"""The engine answers with the weights that a trainer has now: what on-policy training needs between two steps.

One RPC puts an adapter's tensors into a live slot. The id stays and the name changes, because a name is a digest: KV
that was computed with the old weights is not found under the new name, and a request under the old one is refused.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from adapters_store.errors import AdapterError, AdapterUnsupported
from adapters_store.manifest import MANIFEST_FILE, TENSORS_FILE, BaseRef
from adapters_store.names import Method, Position
from adapters_store.peft_config import plain_lora
from adapters_store.weights import adapter_pack
from inference import compat_sync, plugin
from inference.adapter_checks import check_servable
from inference.adapter_request import base_of

if TYPE_CHECKING:
    from peft import PeftModel
    from vllm import LLM
    from vllm.lora.request import LoRARequest

#: PEFT's name of a method to ours. LORA is PEFT's own, which acts everywhere.
_METHODS: dict[str, Method] = {"LORA": "lora", "PREFT_LORA": "lora", "DIREFT": "direft", "LOREFT": "loreft"}


class SyncRefused(AdapterError):
    """The engine did not take the weights, and goes on with those it had; `code` says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Recipe:
    """What makes numbers an adapter."""

    method: Method
    position: Position
    rank: int
    scale: float


def sync_to_engine(model: "PeftModel", llm: "LLM", *, adapter_id: int = 1) -> "LoRARequest":
    """Serve the active adapter of a PEFT model as it is now; ask for it with the LoRARequest that is returned.

    The first call makes the adapter known under `adapter_id`, each further one replaces its weights. Raises
    AdapterError: adapter_mismatch (other tensors or shapes than those that are live under the id), adapter_in_use (a
    request with it is not done), and what any adapter may be refused for; and PluginInactive. Nothing has changed then.
    """
    from adapters_store.attached import tensors_get

    tensors = {name: tensor.numpy() for name, tensor in tensors_get(model).items()}
    return tensors_sync(tensors, recipe_of(model), llm, adapter_id=adapter_id)


def tensors_sync(
    tensors: Mapping[str, np.ndarray], recipe: Recipe, llm: "LLM", *, adapter_id: int
) -> "LoRARequest":
    """As sync_to_engine, from float32 arrays named as in an adapter's folder (docs/adapter-format.md)."""
    plugin.require_active()
    base = base_of(llm)
    manifest, files = adapter_pack(
        tensors=tensors,
        config={},
        base=BaseRef(digest=base.digest, name=base.name),
        method=recipe.method,
        position=recipe.position,
        rank=recipe.rank,
        scale=recipe.scale,
        training={},
    )
    check_servable(manifest, base)
    answers = llm.collective_rpc(
        compat_sync.RPC, args=(adapter_id, manifest.name, files[MANIFEST_FILE], files[TENSORS_FILE])
    )
    for answer in answers:
        if answer["state"] != "ready":
            raise SyncRefused(answer["code"], answer["message"])
    request: LoRARequest = compat_sync.request_of(manifest.name, adapter_id)
    return request


def recipe_of(model: "PeftModel") -> Recipe:
    """Method, position, rank and scale of a PEFT model's active adapter. Raises AdapterUnsupported.

    The scale is the one that its layers multiply by, whatever the options were that it came from; an adapter has one.
    """
    config, name = model.active_peft_config, model.active_adapter
    method = _METHODS.get(config.peft_type.value)
    if method is None:
        raise AdapterUnsupported(
            f"{config.peft_type.value} adapters are not served; these are: {', '.join(sorted(_METHODS))}."
        )
    if config.peft_type.value == "LORA":
        plain_lora(json.dumps(config.to_dict(), default=list).encode())
    scales = set()
    for module in model.modules():
        held = getattr(module, "scaling" if method == "lora" else "scale", None)
        if isinstance(held, dict) and name in held:
            scales.add(float(held[name]))
    if len(scales) != 1:
        raise AdapterUnsupported(
            f"The adapter's layers have the scales {sorted(scales)}; leave out rank_pattern and alpha_pattern."
        )
    position: Position = getattr(config, "position", "all")
    return Recipe(method, position, config.r, scales.pop())
