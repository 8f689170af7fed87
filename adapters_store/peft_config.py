"""Which adapters that PEFT saved are plain LoRAs: those whose options leave nothing but x·Aᵀ·Bᵀ, scaled."""

import json
from typing import Any

from adapters_store.errors import AdapterCorrupt, AdapterUnsupported
from adapters_store.manifest import CONFIG_FILE

#: What says where a LoRA acts (its tensors say it too) and how strongly, how it was trained, or how PEFT handled it.
PLAIN_OPTIONS = {
    "peft_type",
    "peft_version",
    "auto_mapping",
    "base_model_name_or_path",
    "revision",
    "inference_mode",
    "task_type",
    "r",
    "lora_alpha",
    "use_rslora",
    "rank_pattern",
    "alpha_pattern",
    "lora_dropout",
    "init_lora_weights",
    "target_modules",
    "exclude_modules",
    "layers_to_transform",
    "layers_pattern",
    # Of options that are off, or of starts and training alone.
    "qalora_group_size",
    "megatron_core",
    "eva_config",
}
#: Values of init_lora_weights that leave the base model as it is.
_PLAIN_STARTS = (True, False, None, "gaussian", "eva", "orthogonal")
#: What people call it.
_KNOWN_AS = {"use_dora": "DoRA (use_dora)", "alora_invocation_tokens": "aLoRA (alora_invocation_tokens)"}


def plain_lora(data: bytes) -> dict[str, Any]:
    """The fields of an adapter_config.json, if it is a LoRA's and nothing else's.

    Raises AdapterUnsupported, which names all that makes it another function, options that are not known among them;
    AdapterCorrupt if it is not a JSON object.
    """
    try:
        config = json.loads(data)
    except (ValueError, RecursionError):
        raise AdapterCorrupt(f"{CONFIG_FILE} is not JSON.") from None
    if not isinstance(config, dict):
        raise AdapterCorrupt(f"{CONFIG_FILE} is not a JSON object.")
    if (kind := config.get("peft_type", "LORA")) != "LORA":
        raise AdapterUnsupported(f"Of PEFT's methods only LoRA is taken, and this is {str(kind)[:40]}.")
    others = [
        _KNOWN_AS[name] if name in _KNOWN_AS else str(name)
        for name, value in config.items()
        if value and name not in PLAIN_OPTIONS and (name, value) != ("bias", "none")
    ]
    if config.get("init_lora_weights", True) not in _PLAIN_STARTS:
        others.append(f"init_lora_weights ({str(config['init_lora_weights'])[:40]})")
    if others:
        raise AdapterUnsupported(
            f"Only plain LoRA is taken, with any targets, patterns and rslora: {', '.join(sorted(others))[:300]} would "
            "make this adapter another one."
        )
    return config
