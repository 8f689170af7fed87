"""Models of no weights: hand-written configurations of known sizes, for engines that fill in random numbers.

What an adapter costs depends on shapes alone, so nothing has to be downloaded to measure it.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "dtype": "bfloat16",
}
SHAPES: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": {
        **_LLAMA,
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128_256,
        "max_position_embeddings": 131_072,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
        "tie_word_embeddings": False,
    },
    "qwen2.5-0.5b": {
        **_LLAMA,
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "vocab_size": 151_936,
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
        "tie_word_embeddings": True,
    },
    # For a CPU: shows that a script runs.
    "llama-tiny": {
        **_LLAMA,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 32_000,
        "max_position_embeddings": 4096,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        "tie_word_embeddings": True,
    },
}
#: For vllm.LLM: weights of random numbers, and no text.
DUMMY_OPTIONS = {"load_format": "dummy", "skip_tokenizer_init": True}
#: Those numbers are within ±0.001, norms as well: what a LoRA adds is heard beside them from here on.
DUMMY_LORA_UP = 2.0


def write_model(folder: Path, shape: str) -> None:
    """A model's folder that holds a configuration; its weights and tokenizer are there to give it an identity."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(SHAPES[shape], indent=2))
    (folder / "tokenizer.json").write_text("{}")
    save_file({"none": np.zeros(1, np.float32)}, folder / "model.safetensors")
