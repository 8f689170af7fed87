"""Small adapters of every method, made of random numbers, for tests."""

from pathlib import Path

import numpy as np

from adapters_store.manifest import BaseRef, Manifest
from adapters_store.names import Method, Position
from adapters_store.preft.config import scale_of
from adapters_store.weights import adapter_write

LAYER = "base_model.model.model.layers.{}."


def tensors_of(
    method: Method, *, rank: int = 2, width: int = 6, layers: int = 2, seed: int = 0
) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {
        "lora": {
            "self_attn.q_proj.lora_A.weight": (rank, width),
            "self_attn.q_proj.lora_B.weight": (width, rank),
        },
        "direft": {
            "direft_A.weight": (rank, width),
            "direft_A.bias": (rank,),
            "direft_B.weight": (width, rank),
        },
        "loreft": {
            "loreft_R.weight": (rank, width),
            "loreft_W.weight": (rank, width),
            "loreft_W.bias": (rank,),
        },
    }[method]
    return {
        LAYER.format(layer) + name: rng.normal(size=shape).astype(np.float32)
        for layer in range(layers)
        for name, shape in shapes.items()
    }


def write_adapter(
    folder: Path,
    method: Method = "direft",
    position: Position = "prefill",
    *,
    tensors: dict[str, np.ndarray] | None = None,
    rank: int = 2,
    base: str = "b" * 64,
) -> Manifest:
    return adapter_write(
        folder,
        tensors=tensors_of(method, rank=rank) if tensors is None else tensors,
        config={"peft_type": method.upper()},
        base=BaseRef(digest=base, name="tiny"),
        method=method,
        position=position,
        rank=rank,
        scale=scale_of(method, rank),
        training={},
    )
