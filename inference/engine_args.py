"""How vLLM must be started for adapters to work as this package promises. Used by serve, tests and benchmarks alike.

`python -m inference.engine_args` prints it as options of vLLM's own server.
"""

import contextlib
import json
import sys
from typing import Any

from adapters_store.preft.config import PROJECTIONS
from inference.residual import SITE

#: Where adapters may act. vLLM allocates slots for these modules alone (otherwise lm_head gets some too).
TARGET_MODULES = (*(name.rpartition(".")[2] for name in PROJECTIONS), SITE)


def preft_engine_args(
    *,
    gpu_slots: int | None = None,
    cpu_slots: int = 64,
    max_rank: int = 32,
    block_size: int | None = None,
    on_cpu: bool | None = None,
) -> dict[str, Any]:
    """Keyword arguments for vllm.LLM or AsyncEngineArgs, to be merged with the caller's own.

    gpu_slots bounds the distinct adapters of one step (None: 8, on a CPU cpu_slots, because a slot there only refers to
    what is in memory), cpu_slots those in the workers' memory (at least gpu_slots),
    max_rank is one of vLLM's (1, 8, 16, 32, 64, 128, 256, 320, 512), block_size is in tokens (None: vLLM's choice).
    On a CPU (None: ask vLLM which platform this is) the model runs eagerly in float32: bfloat16 attention there gives
    wrong text for some shapes. Raises PluginInactive if the plugin refuses to work with the installed vLLM.
    """
    from inference import plugin

    plugin.register()
    plugin.require_active()
    if on_cpu is None:
        on_cpu = plugin.on_cpu()
    if gpu_slots is None:
        gpu_slots = cpu_slots if on_cpu else 8
    args: dict[str, Any] = {
        "enable_lora": True,
        "max_loras": gpu_slots,
        "max_cpu_loras": max(cpu_slots, gpu_slots),
        "max_lora_rank": max_rank,
        "lora_target_modules": list(TARGET_MODULES),
        "enable_prefix_caching": True,
        # The plugin changes what the compiled graph computes, so it belongs in the key of the compile cache.
        "additional_config": {"attune_plugin": plugin.source_digest()},
    }
    if block_size is not None:
        args["block_size"] = block_size
    if on_cpu:
        args |= {"dtype": "float32", "enforce_eager": True}
    return args


def as_options(args: dict[str, Any]) -> list[str]:
    """Keyword arguments as vLLM's command line has them; none holds a space, so that a shell may split them."""
    options = []
    for name, value in args.items():
        options.append(f"--{name.replace('_', '-')}")
        if isinstance(value, list):
            options += value
        elif isinstance(value, dict):
            options.append(json.dumps(value, separators=(",", ":")))
        elif value is not True:
            options.append(str(value))
    return options


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):  # where vLLM logs
        found = preft_engine_args()
    print(*as_options(found))
