"""The part of compat that keeps a worker's adapters in memory; what is there is inference.memory's to know."""

import functools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from adapters_store.errors import AdapterUnsupported
from adapters_store.manifest import Manifest
from inference.compat_table import installed_version
from inference.convert import Matrices, is_attune_folder, vllm_matrices
from inference.engine_checks import check_fits, check_folder, check_plain_options


def read_adapter(lora_manager: Any, name: str, path: str) -> Any:
    """Weights that this worker's model can take, checked and packed; in any thread. Raises AdapterError and others."""
    from vllm.lora.request import LoRARequest

    manager = lora_manager._adapter_manager
    check_folder(Path(path), name)
    if is_attune_folder(Path(path)):
        return attune_adapter(lora_manager, *vllm_matrices(Path(path), name))
    if installed_version() == "0.26.0":
        check_plain_options(Path(path))
    return _packed(manager, lora_manager.attune_stock_load(LoRARequest(name, 1, path)))


def attune_adapter(lora_manager: Any, manifest: Manifest, matrices: Matrices) -> Any:
    """The same from what inference.convert made of an adapter of ours."""
    from vllm.lora.lora_model import LoRAModel
    from vllm.lora.peft_helper import PEFTHelper

    config = lora_manager.lora_config
    if manifest.rank > config.max_lora_rank:
        raise AdapterUnsupported(
            f"The adapter has rank {manifest.rank}; this engine serves ranks up to {config.max_lora_rank}."
        )
    adapter = LoRAModel.from_lora_tensors(
        lora_model_id=1,
        tensors={key: torch.from_numpy(np.ascontiguousarray(value)) for key, value in matrices.items()},
        # The scale is part of B already, and each site's own rank is its matrices': vLLM is to multiply by one.
        peft_helper=PEFTHelper(r=manifest.rank, lora_alpha=manifest.rank, target_modules=[]),
        device="cpu",
        dtype=config.lora_dtype,
    )
    return _packed(lora_manager._adapter_manager, adapter)


def _packed(manager: Any, adapter: Any) -> Any:
    """An adapter that fits, with what vLLM computes together (q, k and v) side by side."""
    check_fits(adapter, manager)
    manager._create_merged_loras_inplace(adapter)
    if manager.device.type == "cpu":
        _lay_out(adapter)
    return adapter


def _lay_out(adapter: Any) -> None:
    """B as the CPU kernel reads it, here, off a step's path: a slot then only refers to it."""
    from inference.kernels import by_rank

    for layer in adapter.loras.values():
        if isinstance(layer.lora_b, list):
            layer.lora_b = [None if b is None else by_rank(b) for b in layer.lora_b]
        else:
            layer.lora_b = by_rank(layer.lora_b)


def bytes_of(adapter: Any) -> int:
    """What a LoRAModel's tensors take; a side of a packed layer is a list with None where a projection has none."""
    sides = [side for layer in adapter.loras.values() for side in (layer.lora_a, layer.lora_b)]
    tensors = [tensor for side in sides for tensor in (side if isinstance(side, list) else [side])]
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)


def install() -> None:
    """Called by compat, after the sources were checked.

    0.26-0.33. An adapter is read from disk inside the step that needs it, and an error there ends the engine. Goes
    when vLLM loads adapters before it schedules their requests, and fails the request alone.
    """
    from vllm.lora.model_manager import LoRAModelManager
    from vllm.lora.worker_manager import WorkerLoRAManager
    from vllm.v1.worker.worker_base import WorkerBase

    WorkerLoRAManager.attune_stock_load = WorkerLoRAManager._load_adapter

    def load_adapter(self: Any, lora_request: Any) -> Any:
        adapter = self.attune_memory.get(lora_request.lora_int_id, lora_request.lora_name)
        if adapter is None:  # vLLM's own add_lora, outside any step
            adapter = read_adapter(self, lora_request.lora_name, lora_request.lora_path)
        return adapter.clone(lora_request.lora_int_id)

    WorkerLoRAManager._load_adapter = load_adapter

    def prefetch(self: Any, name: str, path: str) -> dict[str, str]:
        return self.model_runner.lora_manager.attune_memory.prefetch(name, path)

    def load(self: Any, lora_request: Any, drop: list[int]) -> dict[str, Any]:
        manager = self.model_runner.lora_manager
        for adapter_id in drop:
            manager.remove_adapter(adapter_id)
        return manager.attune_memory.load(
            lora_request.lora_int_id, lora_request.lora_name, lora_request.lora_path, drop
        )

    def status(self: Any) -> dict[str, Any]:
        manager = self.model_runner.lora_manager
        memory, slots = manager.attune_memory, manager._adapter_manager
        return {
            "active": True,
            "adapters": sorted(memory.names()),
            **memory.figures(),
            "slots_taken": len(slots.lora_index_to_id) - slots.lora_index_to_id.count(None),
            "slot_lookups": dict(slots.attune_lookups),
        }

    activate = LoRAModelManager.activate_adapter

    @functools.wraps(activate)
    def activate_adapter(self: Any, lora_id: int) -> bool:
        activated: bool = activate(self, lora_id)
        self.attune_lookups["miss" if activated else "hit"] += 1
        return activated

    # One for the process: a worker has one manager.
    LoRAModelManager.attune_lookups = Counter()
    LoRAModelManager.activate_adapter = activate_adapter

    WorkerBase.attune_prefetch = prefetch
    WorkerBase.attune_load = load
    WorkerBase.attune_status = status
