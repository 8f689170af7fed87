"""Adapters of random numbers: they cost what trained ones cost, and each changes the answers in its own way."""

from pathlib import Path

import numpy as np

from adapters_store.manifest import BaseRef
from adapters_store.names import Method
from adapters_store.preft.config import DEFAULT_ALPHA, PROJECTIONS, scale_of
from adapters_store.weights import adapter_write
from inference.adapter_checks import ServedBase


def random_adapter(folder: Path, *, base: ServedBase, method: Method, rank: int, seed: int) -> str:
    """Write a prefill-only adapter and return its serving name.

    A lora's adapter_config.json is PEFT's own, so that stock vLLM takes the same folder as an all-position LoRA.
    """
    rng = np.random.default_rng(seed)
    tensors = _lora(rng, base, rank) if method == "lora" else _direft(rng, base, rank)
    manifest = adapter_write(
        folder,
        tensors=tensors,
        config=_peft_config(rank) if method == "lora" else {"peft_type": "DIREFT"},
        base=BaseRef(digest=base.digest, name=base.name),
        method=method,
        position="prefill",
        rank=rank,
        scale=scale_of(method, rank),
        training={},
    )
    return manifest.name


def _peft_config(rank: int) -> dict[str, object]:
    return {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": DEFAULT_ALPHA,
        "target_modules": [site.rpartition(".")[2] for site in PROJECTIONS],
    }


def _lora(rng: np.random.Generator, base: ServedBase, rank: int) -> dict[str, np.ndarray]:
    tensors = {}
    for layer in range(base.layers):
        for site, (width_in, width_out) in base.widths.items():
            name = f"base_model.model.model.layers.{layer}.{site}.lora_"
            tensors[f"{name}A.weight"] = rng.normal(0, width_in**-0.5, (rank, width_in))
            tensors[f"{name}B.weight"] = rng.normal(0, 0.02, (width_out, rank))
    return tensors


def _direft(rng: np.random.Generator, base: ServedBase, rank: int) -> dict[str, np.ndarray]:
    tensors = {}
    for layer in range(base.layers):
        name = f"base_model.model.model.layers.{layer}.direft_"
        tensors[f"{name}A.weight"] = rng.normal(0, base.hidden**-0.5, (rank, base.hidden))
        tensors[f"{name}A.bias"] = rng.normal(0, 2, rank)
        tensors[f"{name}B.weight"] = rng.normal(0, 0.1, (base.hidden, rank))
    return tensors
