"""A base model and an adapter, straight from their folders into an engine in Python: no copy in transformers."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from inference.adapter_request import base_to_serve, request_for
from inference.engine_args import preft_engine_args

if TYPE_CHECKING:
    from vllm import LLM
    from vllm.lora.request import LoRARequest


def build_vllm(
    base: str | Path,
    adapter: str | Path,
    *,
    gpu_slots: int | None = None,
    cpu_slots: int = 64,
    max_rank: int = 32,
    block_size: int | None = None,
    **options: Any,
) -> tuple["LLM", "LoRARequest"]:
    """The engine, and what to ask it with (`lora_request`) for `adapter`, which has the id 1.

    Slots, rank and blocks as in `preft_engine_args`; `options` are vLLM's own. Further adapters: `adapter_request`.
    Raises PluginInactive, and AdapterError (as `adapter_request`) for an adapter that is not of this base.
    """
    args = preft_engine_args(
        gpu_slots=gpu_slots, cpu_slots=cpu_slots, max_rank=max_rank, block_size=block_size
    )
    # Before the engine starts, which takes a minute.
    request = request_for(adapter, base_to_serve(str(base), max_rank), adapter_id=1)
    from vllm import LLM

    return LLM(str(base), **{**args, **options}), request
