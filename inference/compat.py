"""Every touch of vLLM's private names, each with why it is there and when it can go.

The rest of this package says what to do; this module says where in vLLM it is done. install() changes nothing unless
the installed version is in compat_table and every function that is replaced or relied upon has the very source that
was read when the table was written.
"""

import functools
import pkgutil
import sys
from argparse import Namespace
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from vllm.logger import init_logger

from inference import (
    compat_admission,
    compat_beam,
    compat_cpu,
    compat_cuda,
    compat_memory,
    compat_metrics,
    compat_sync,
    compat_v2,
    phase,
    residual,
)
from inference.compat_table import TOUCHED, TOUCHED_ON_CPU, TOUCHED_ON_CUDA, check_sources, installed_version
from inference.engine_checks import Unservable, check_config, check_not_resumable
from inference.memory import AdapterMemory
from inference.prefix_keys import prefill_key
from inference.scheduling import needs_adapter
from inference.settings import adapter_settings

logger = init_logger("vllm.attune")


def install() -> None:
    """Teach this process's vLLM prefill-only adapters. Raises Incompatible, having changed nothing."""
    if on_cpu():
        compat_cpu.check_version()
    check_sources((*TOUCHED, *(TOUCHED_ON_CPU if on_cpu() else TOUCHED_ON_CUDA)))
    _phase()
    _graph_dispatch()
    _slots()
    _prefix_keys()
    if on_cpu():
        compat_cpu.install()
    else:
        compat_v2.install()
        compat_cuda.install()
    _residual_site()
    _model_loading()
    compat_memory.install()
    compat_admission.install()
    compat_sync.install()
    compat_beam.install()
    compat_metrics.install()


def platform() -> str:
    """The name of vLLM's platform: cpu, cuda, or one that check_config refuses."""
    from vllm.platforms import current_platform

    return current_platform.device_name


def on_cpu() -> bool:
    return platform() == "cpu"


def one_process(args: Namespace) -> AbstractContextManager[None]:
    """Start the server inside: on one device EngineCore runs the model itself (on a GPU that is vLLM's own way)."""
    return compat_cpu.one_process(args) if on_cpu() else nullcontext()


def _phase() -> None:
    """0.26-0.33. V1's mapping of tokens to adapters knows requests only (V2: compat_v2). Goes when vLLM has per-token
    adapter ranges.
    """
    from vllm.v1.worker.gpu_input_batch import InputBatch

    def make_lora_inputs(
        self: Any, num_scheduled_tokens: np.ndarray, num_sampled_tokens: np.ndarray
    ) -> tuple[tuple[int, ...], tuple[int, ...], set[Any]]:
        count = self.num_reqs
        by_id = self.lora_id_to_lora_request
        adapters = self.request_lora_mapping[:count]
        prefill_ids = [
            key for key, adapter in by_id.items() if phase.position_of(adapter.lora_name) == "prefill"
        ]
        tokens, samples = phase.token_adapters(
            adapters=adapters,
            prefill_only=phase.prefill_only(adapters, prefill_ids),
            prompt_lengths=self.num_prompt_tokens[:count],
            starts=self.num_computed_tokens_cpu[:count],
            scheduled=num_scheduled_tokens,
            sampled=num_sampled_tokens,
        )
        self.attune_active = phase.active(tokens, samples)
        return tuple(samples.tolist()), tuple(tokens.tolist()), {by_id[key] for key in self.attune_active}

    InputBatch.attune_active = frozenset()
    InputBatch.make_lora_inputs = make_lora_inputs


def _graph_dispatch() -> None:
    """0.26-0.33. V1 chooses the CUDA graph by the adapters of all requests in the batch, so a step of generated tokens
    would not replay the graph without LoRA. Goes when vLLM counts what make_lora_inputs returned.
    """
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    original = GPUModelRunner._determine_batch_execution_and_padding

    @functools.wraps(original)
    def determine(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.lora_config and kwargs.get("force_num_active_loras") is None:
            count = len(self.input_batch.attune_active)
            kwargs |= {"force_num_active_loras": count, "force_has_lora": count > 0}
        return original(self, *args, **kwargs)

    GPUModelRunner._determine_batch_execution_and_padding = determine


def _slots() -> None:
    """0.26-0.33. The scheduler counts the adapters of all running requests against max_loras, and asserts. Goes when it
    counts those with adapted tokens to compute.

    A property, so that every reader in the scheduler sees the same and nothing has to be dropped or restored. Workers
    and the API process hold copies of their own of what was asked for.
    """
    from vllm.v1.request import Request, RequestStatus

    def get(self: Any) -> Any:
        adapter = self.attune_adapter
        if adapter is None or needs_adapter(
            position=phase.position_of(adapter.lora_name),
            running=self.status == RequestStatus.RUNNING,
            computed=self.num_computed_tokens,
            prompt_length=self.num_prompt_tokens,
        ):
            return adapter
        return None

    def put(self: Any, adapter: Any) -> None:
        self.attune_adapter = adapter

    Request.lora_request = property(get, put)

    original = Request.from_engine_core_request.__func__

    @functools.wraps(original)
    def from_engine_core_request(cls: type, request: Any, block_hasher: Any) -> Any:
        check_not_resumable(request)
        return original(cls, request, block_hasher)

    Request.from_engine_core_request = classmethod(from_engine_core_request)


def _prefix_keys() -> None:
    """0.26-0.33. A block's key holds the adapter but not where it acted. Goes when vLLM's keys know adapted ranges.

    The key function is imported by name elsewhere (block_pool, simple_kv_offload), so every module that has it is
    given the new one.
    """
    from vllm.v1.core import block_pool, kv_cache_utils
    from vllm.v1.simple_kv_offload import manager

    ordinary = kv_cache_utils._gen_lora_extra_hash_keys
    original = kv_cache_utils.generate_block_hash_extra_keys

    def is_prefill(request: Any) -> bool:
        adapter = request.attune_adapter
        return adapter is not None and phase.position_of(adapter.lora_name) == "prefill"

    @functools.wraps(ordinary)
    def lora_keys(request: Any) -> list[Any]:
        return [] if is_prefill(request) else ordinary(request)

    @functools.wraps(original)
    def extra_keys(
        request: Any, start_token_idx: int, end_token_idx: int, start_mm_idx: int
    ) -> tuple[Any, int]:
        keys, mm_idx = original(request, start_token_idx, end_token_idx, start_mm_idx)
        if is_prefill(request):
            key = prefill_key(
                request.attune_adapter.lora_name, start_token_idx, end_token_idx, request.num_prompt_tokens
            )
            keys = (key, *(keys or ()))
        return keys, mm_idx

    kv_cache_utils._gen_lora_extra_hash_keys = lora_keys
    assert {block_pool, manager} <= set(sys.modules.values())
    for name, module in list(sys.modules.items()):
        if name.startswith("vllm.") and vars(module).get("generate_block_hash_extra_keys") is original:
            module.generate_block_hash_extra_keys = extra_keys


def _residual_site() -> None:
    """0.26-0.33. Adapted layers are a closed list, and only linear layers and embeddings count. Goes when vLLM lets a
    plugin register a LoRA layer class.
    """
    import vllm.lora.model_manager as model_manager
    import vllm.lora.utils as lora_utils
    from vllm.lora.layers.base import BaseLayerWithLoRA

    class ResidualStreamWithLoRA(residual.ResidualSlots, BaseLayerWithLoRA):
        def __init__(self, base_layer: residual.ResidualStream) -> None:
            super().__init__()
            self.base_layer = base_layer
            self.device = base_layer.device

        @classmethod
        def can_replace_layer(cls, source_layer: Any, **kwargs: Any) -> bool:
            return isinstance(source_layer, residual.ResidualStream)

    supported, is_supported = lora_utils.get_supported_lora_modules, lora_utils.is_supported_lora_module

    @functools.wraps(supported)
    def get_supported_lora_modules(model: Any) -> list[str]:
        return [*supported(model), residual.SITE]

    @functools.wraps(is_supported)
    def is_supported_lora_module(module_name: str, module: Any, names: list[str]) -> bool:
        return isinstance(module, residual.ResidualStream) or is_supported(module_name, module, names)

    lora_utils._all_lora_classes = (ResidualStreamWithLoRA, *lora_utils._all_lora_classes)
    model_manager.get_supported_lora_modules = get_supported_lora_modules
    # 0.26 goes by the name alone, which the list of names has now.
    if installed_version() != "0.26.0":
        model_manager.is_supported_lora_module = is_supported_lora_module


def _model_loading() -> None:
    """0.26-0.33. The one place where a worker has the model, its config and the LoRA config together. Stays."""
    from vllm.v1.worker.lora_model_runner_mixin import LoRAModelRunnerMixin

    original = LoRAModelRunnerMixin.load_lora_model

    @functools.wraps(original)
    def load_lora_model(self: Any, model: Any, vllm_config: Any, device: torch.device) -> Any:
        layer = check_config(vllm_config, model, platform=platform())
        sites = 0
        if layer is not None:
            check_sources([f"{layer}.forward"])
            width = vllm_config.model_config.get_hidden_size()
            layer_type = pkgutil.resolve_name(layer)
            sites = residual.add_sites(model.model.layers, layer_type=layer_type, width=width, device=device)
            if not sites:
                raise Unservable(
                    f"None of the model's layers is a {layer}; DiReFT and LoReFT would do nothing."
                )
        if vllm_config.use_v2_model_runner:
            compat_v2.give_states(self)
        logger.info(
            "vLLM %s on %s, model runner %s: %d residual sites, %s.",
            installed_version(),
            platform(),
            "V2" if vllm_config.use_v2_model_runner else "V1",
            sites,
            vllm_config.lora_config,
        )
        loaded = original(self, model, vllm_config, device)
        if on_cpu():
            compat_cpu.warm_up()
        self.lora_manager.attune_memory = AdapterMemory(
            read=functools.partial(compat_memory.read_adapter, self.lora_manager),
            size=compat_memory.bytes_of,
            capacity=vllm_config.lora_config.max_cpu_loras,
            staged_bytes=adapter_settings().staged_bytes,
        )
        return loaded

    LoRAModelRunnerMixin.load_lora_model = load_lora_model
