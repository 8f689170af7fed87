"""The part of compat for CPUs: kernels that know segments, and no work at all in steps that adapt nothing."""

import functools
from typing import Any

import torch

from inference import kernels, phase


def install() -> None:
    """Called by compat on a CPU, after the sources were checked."""
    from vllm.lora.layers import column_parallel_linear, row_parallel_linear
    from vllm.lora.model_manager import LoRAModelManager
    from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

    _kernels(PunicaWrapperCPU)
    _weights(LoRAModelManager)
    _bypass(column_parallel_linear.ColumnParallelLinearWithLoRA)
    _bypass(row_parallel_linear.RowParallelLinearWithLoRA)


def _kernels(wrapper: Any) -> None:
    """0.32. The CPU kernels give tokens without an adapter the weights of the last slot, and gather weights token by
    token. Goes when vLLM fixes both (the first is a bug worth reporting).
    """
    original = wrapper.update_metadata

    @functools.wraps(original)
    def update_metadata(self: Any, mapping: Any, lora_index_to_id: Any, *args: Any, **kwargs: Any) -> None:
        original(self, mapping, lora_index_to_id, *args, **kwargs)
        slot_of = {adapter: slot for slot, adapter in enumerate(lora_index_to_id) if adapter is not None}
        slot_of[phase.NO_ADAPTER] = kernels.NO_SLOT
        self.attune_segments = kernels.segments_of([slot_of[adapter] for adapter in mapping.index_mapping])

    def add_lora_linear(
        self: Any,
        y: torch.Tensor,
        x: torch.Tensor,
        lora_a_stacked: tuple[torch.Tensor, ...],
        lora_b_stacked: tuple[torch.Tensor, ...],
        scale: float,
        output_slices: tuple[int, ...],
        **kwargs: Any,
    ) -> None:
        assert scale == 1.0, "vLLM folds an adapter's scale into B"
        if self.attune_segments:
            kernels.add_lora(y, x, lora_a_stacked[0].attune_slots, self.attune_segments)

    def add_residual(
        self: Any,
        hidden: torch.Tensor,
        stream: torch.Tensor,
        a: torch.Tensor,
        b: torch.Tensor,
        bias: torch.Tensor,
    ) -> None:
        if self.attune_segments:
            kernels.add_residual(hidden, stream, a.attune_slots, self.attune_segments)

    wrapper.attune_segments = ()
    wrapper.update_metadata = update_metadata
    wrapper.add_lora_linear = add_lora_linear
    wrapper.add_residual = add_residual


def _weights(manager: Any) -> None:
    """0.32. Whoever is handed a site's stack by vLLM's layers has the slots' weights with it: an attribute. Stays."""
    original = manager.activate_adapter

    @functools.wraps(original)
    def activate_adapter(self: Any, lora_id: int) -> bool:
        activated = original(self, lora_id)
        if activated:
            _lay_out(self, lora_id)
        return activated

    manager.activate_adapter = activate_adapter


def _lay_out(manager: Any, lora_id: int) -> None:
    slot = manager.lora_index_to_id.index(lora_id)
    adapter = manager._registered_adapters[lora_id]
    for name, module in manager.modules.items():
        weights = manager._get_lora_layer_weights(adapter, name)
        stacks = module.lora_a_stacked
        parts = [None] * len(stacks) if weights is None else weights.lora_a
        parts = parts if isinstance(parts, list) else [parts]
        if not hasattr(stacks[0], "attune_slots"):
            stacks[0].attune_slots = [None] * stacks[0].shape[0]
        stacks[0].attune_slots[slot] = kernels.slot_weights(
            stacks,
            module.lora_b_stacked,
            slot,
            [0 if part is None else part.shape[0] for part in parts],
            bias=getattr(module, "bias_stacked", None),
        )


def _bypass(layer: Any) -> None:
    """0.32. An adapted layer repeats its base layer's work in Python before it asks the kernels for nothing. Goes when
    vLLM skips adapters in steps that have none.
    """
    original = layer.forward

    @functools.wraps(original)
    def forward(self: Any, input_: torch.Tensor) -> Any:
        if self.punica_wrapper.attune_segments:
            return original(self, input_)
        return self.base_layer(input_)

    layer.forward = forward
