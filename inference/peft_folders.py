"""Plain PEFT folders, which hold no manifest of ours: which of PEFT's methods they may have."""

import json
from typing import Any

from adapters_store.errors import AdapterCorrupt, AdapterUnsupported

#: Options of adapter_config.json that make another method of a LoRA, and what people call it.
_OTHER_METHODS = {
    "use_dora": "DoRA",
    "alora_invocation_tokens": "aLoRA (alora_invocation_tokens)",
    "modules_to_save": "modules_to_save",
    "lora_bias": "lora_bias",
    "layer_replication": "layer_replication",
    "use_bdlora": "BD-LoRA",
    "use_qalora": "QALoRA",
}
#: Values of init_lora_weights, where it is a name, that leave the base model as it is.
_PLAIN_STARTS = ("gaussian", "eva", "orthogonal", "mica", "lora_ga")


def check_plain_lora(data: bytes) -> dict[str, Any]:
    """The fields of an adapter_config.json, if it is a LoRA's and nothing else's: any targets, patterns, rslora.

    Raises AdapterUnsupported, which names all that is not served, or AdapterCorrupt.
    """
    try:
        config = json.loads(data)
    except (ValueError, RecursionError):
        raise AdapterCorrupt("adapter_config.json is not JSON.") from None
    if not isinstance(config, dict):
        raise AdapterCorrupt("adapter_config.json is not a JSON object.")
    if (method := config.get("peft_type", "LORA")) != "LORA":
        raise AdapterUnsupported(f"PEFT's {str(method)[:40]} is not served; LoRA, DiReFT and LoReFT are.")
    found = [name for option, name in _OTHER_METHODS.items() if config.get(option)]
    start = config.get("init_lora_weights")
    if isinstance(start, str) and start.lower() not in _PLAIN_STARTS:
        found.append(f"init_lora_weights ({start[:40]})")
    if config.get("bias", "none") != "none":
        found.append("bias")
    if found:
        raise AdapterUnsupported(
            f"The adapter's {', '.join(found)} {'is' if len(found) == 1 else 'are'} not served: only plain LoRA is, "
            "with any targets, rank_pattern, alpha_pattern and use_rslora."
        )
    return config
