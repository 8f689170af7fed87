"""The kinds of adapter that are measured, the engine that serves each, and what that engine is started with."""

from dataclasses import dataclass
from typing import Any

from adapters_store.names import Method, Position

#: What vLLM has buffers for.
_RANKS = (8, 16, 32, 64, 128, 256, 512)
#: CUDA: several engines share a card, so each is told how much it may have instead of taking what is free.
_CUDA_SHARE = {"kv_cache_memory_bytes": 4 << 30, "gpu_memory_utilization": 0.05}


@dataclass(frozen=True)
class Kind:
    label: str
    #: One process each: base, base_again, stock (vLLM without us), ours, ours_all, ours_uncached.
    engine: str
    method: Method | None = None
    position: Position = "prefill"


KINDS = {
    "base": Kind("base model, no adapters", "base"),
    # What two engines that differ in nothing differ by is the measurement's own error.
    "base_again": Kind("base model, a second process", "base_again"),
    "lora_stock": Kind("stock vLLM LoRA, all tokens", "stock", "lora", "all"),
    "lora_p": Kind("LoRA_P", "ours", "lora"),
    "direft_p": Kind("DiReFT_P", "ours", "direft"),
    "lora": Kind("LoRA, all tokens, our kernels", "ours_all", "lora", "all"),
    "direft": Kind("DiReFT, all tokens", "ours_all", "direft", "all"),
    "lora_p_uncached": Kind("LoRA_P, prefix caching off", "ours_uncached", "lora"),
}


@dataclass(frozen=True)
class Capacity:
    """What an engine has room for. `all_slots` is for those whose requests keep their slot until they end."""

    gpu_slots: int
    all_slots: int
    cpu_slots: int
    max_rank: int


def capacity_of(*, adapters: int, batch: int, gpu_slots: int, cpu_slots: int | None, rank: int) -> Capacity:
    """Room in memory for every adapter unless `cpu_slots` says less; a slot for each adapter of a batch at most."""
    return Capacity(
        gpu_slots=gpu_slots,
        # Fewer, and requests would wait for slots as well.
        all_slots=max(1, min(adapters, batch)),
        cpu_slots=cpu_slots or max(64, adapters),
        max_rank=next(buffer for buffer in _RANKS if buffer >= rank),
    )


def with_plugin(engine: str) -> bool:
    return engine.startswith("ours")


def options_of(engine: str, ours: dict[str, Any], capacity: Capacity, *, on_cpu: bool) -> dict[str, Any]:
    """`ours` is what inference.serve starts its engine with; the others differ from it in nothing but adapters."""
    ours = ours if on_cpu else {**ours, **_CUDA_SHARE}
    match engine:
        case "ours":
            return ours
        case "ours_uncached":
            return {**ours, "enable_prefix_caching": False}
        case "ours_all":
            return {**ours, "max_loras": capacity.all_slots, "max_cpu_loras": _room(capacity)}
    plain = {key: value for key, value in ours.items() if "lora" not in key and key != "additional_config"}
    if engine.startswith("base"):
        return plain
    return {
        **plain,
        "enable_lora": True,
        "lora_target_modules": [name for name in ours["lora_target_modules"] if name.endswith("_proj")],
        "max_lora_rank": ours["max_lora_rank"],
        "max_loras": capacity.all_slots,
        "max_cpu_loras": _room(capacity),
    }


def _room(capacity: Capacity) -> int:
    return max(capacity.cpu_slots, capacity.all_slots)
