"""The part of compat for CUDA: the residual site through vLLM's Triton kernels, and no work for what a slot lacks."""

import dataclasses
import functools
import logging
from typing import Any

import torch
from vllm.logger import init_logger

from inference import kernels_cuda, residual
from inference.compat_table import installed_version

logger = init_logger("vllm.attune")


def install() -> None:
    """Called by compat on CUDA, after the sources were checked."""
    from vllm.lora.model_manager import LoRAModelManager
    from vllm.lora.punica_wrapper import punica_gpu

    _register_op(punica_gpu)
    teach(punica_gpu.PunicaWrapperGPU)
    if installed_version() in ("0.26.0", "0.32.0"):
        _expand_in_one_stage()

    activate = LoRAModelManager.activate_adapter

    @functools.wraps(activate)
    def activate_adapter(self: Any, lora_id: int) -> bool:
        activated = activate(self, lora_id)
        if activated:
            note_sites(self, lora_id)
        return activated

    LoRAModelManager.activate_adapter = activate_adapter


def _register_op(punica_gpu: Any) -> None:
    """0.26-0.33. The whole site is one opaque operation, as vLLM's kernels are: what a compiled or captured graph
    holds of it in a step without adapters is nothing, not even the sum of the stream. Stays.
    """
    from vllm.utils.torch_utils import direct_register_custom_op

    def attune_add_residual(
        hidden: torch.Tensor,
        stream: torch.Tensor,
        a: torch.Tensor,
        b: torch.Tensor,
        bias: torch.Tensor,
        token_slots: torch.Tensor,
        metadata: list[torch.Tensor],
    ) -> None:
        kernels_cuda.add_residual(
            hidden,
            stream,
            a,
            b,
            bias,
            token_slots,
            metadata,
            shrink=punica_gpu.lora_shrink,
            expand=punica_gpu.lora_expand,
        )

    direct_register_custom_op(
        op_name="attune_add_residual",
        op_func=attune_add_residual,
        mutates_args=["hidden"],
        fake_impl=lambda *args: None,
    )


def teach(wrapper: Any) -> None:
    """0.26-0.33. The kernels know of slots, not of sites: a DiReFT adapter pays for zeros at q_proj and a LoRA for
    zeros on the stream; and there is no bias between shrink and expand. Goes when vLLM's metadata knows which slots a
    module has weights for.

    `wrapper` is the class PunicaWrapperGPU. Its metadata is a dataclass of tensors at fixed addresses, which graphs
    rely on; the site's is the same one with other active slots.
    """
    init, update = wrapper.__init__, wrapper.update_metadata

    @functools.wraps(init)
    def __init__(self: Any, max_num_batched_tokens: int, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        init(self, max_num_batched_tokens, *args, **kwargs)
        meta, device = self.token_mapping_meta, self.device
        self.attune_stream_meta = dataclasses.replace(meta, active_lora_ids=meta.active_lora_ids.clone())
        #: A row of the bias stack for each token; the last row, zero, for tokens without a slot.
        self.attune_token_slots = torch.full(
            (max_num_batched_tokens,), self.max_loras, dtype=torch.int64, device=device
        )
        self.attune_in_linear = torch.zeros(self.max_loras + 1, dtype=torch.bool, device=device)
        self.attune_in_stream = torch.zeros(self.max_loras + 1, dtype=torch.bool, device=device)

    @functools.wraps(update)
    def update_metadata(self: Any, mapping: Any, *args: Any, **kwargs: Any) -> None:
        update(self, mapping, *args, **kwargs)
        active, slots = self.token_mapping_meta.active_lora_ids, self.token_lora_indices
        self.attune_stream_meta.active_lora_ids.copy_(kernels_cuda.mask_slots(active, self.attune_in_stream))
        active.copy_(kernels_cuda.mask_slots(active, self.attune_in_linear))
        self.attune_token_slots[: len(slots)] = torch.where(slots < 0, self.max_loras, slots)
        if logger.isEnabledFor(logging.DEBUG):  # reads from the GPU, so it waits for it
            logger.debug(
                "adapter kernels: %d tokens, slots with linear sites %s, with the residual stream %s",
                len(slots),
                active.tolist(),
                self.attune_stream_meta.active_lora_ids.tolist(),
            )

    def add_residual(
        self: Any,
        hidden: torch.Tensor,
        stream: torch.Tensor,
        a: torch.Tensor,
        b: torch.Tensor,
        bias: torch.Tensor,
    ) -> None:
        metadata = self.attune_stream_meta.meta_args(hidden.size(0), self.lora_config.specialize_active_lora)
        torch.ops.vllm.attune_add_residual(
            hidden, stream, a, b, bias, self.attune_token_slots, list(metadata)
        )

    wrapper.__init__ = __init__
    wrapper.update_metadata = update_metadata
    wrapper.add_residual = add_residual


def note_sites(manager: Any, lora_id: int) -> None:
    """Tell the kernels whether this adapter has linear sites, and whether it has the residual stream."""
    slot = manager.lora_index_to_id.index(lora_id)
    adapter = manager._registered_adapters[lora_id]
    linear = stream = False
    for name, module in manager.modules.items():
        if manager._get_lora_layer_weights(adapter, name) is None:
            continue
        if isinstance(module, residual.ResidualSlots):
            stream = True
        else:
            linear = True
    logger.debug("slot %d: adapter %d, linear sites %s, residual stream %s", slot, lora_id, linear, stream)
    for wrapper in manager.punica_wrapper_mapping.values():
        wrapper.attune_in_linear[slot] = linear
        wrapper.attune_in_stream[slot] = stream


def _expand_in_one_stage() -> None:
    """0.26, 0.32. Pipelined, the expand kernel is miscompiled for Hopper (triton-lang/triton#9433). 0.33 does the same
    there. Goes with 0.32.
    """
    from vllm.lora.ops.triton_ops import lora_expand_op
    from vllm.platforms import current_platform

    original = lora_expand_op.get_lora_op_configs

    @functools.wraps(original)
    def get_lora_op_configs(*args: Any, **kwargs: Any) -> dict[str, Any]:
        config: dict[str, Any] = original(*args, **kwargs)
        return config | {"num_stages": 1} if current_platform.is_device_capability(90) else config

    lora_expand_op.get_lora_op_configs = get_lora_op_configs
