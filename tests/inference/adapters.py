"""Random adapters, strong enough that every one of them changes what the model says."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from adapters_store.base import base_digest
from adapters_store.manifest import BaseRef, Manifest
from adapters_store.names import Method, Position
from adapters_store.preft.config import PROJECTIONS, scale_of
from adapters_store.weights import adapter_write
from inference.adapter_checks import served_base

#: adapter_config.json's peft_type: only an all-position LoRA is something that stock PEFT may load.
_PEFT_TYPE = {"lora": "PREFT_LORA", "direft": "DIREFT", "loreft": "LOREFT"}


@dataclass(frozen=True)
class Adapter:
    """An adapter as tests make it: its manifest, its float32 arrays and the folder where it lies."""

    manifest: Manifest
    tensors: dict[str, np.ndarray]
    folder: Path

    @property
    def name(self) -> str:
        return self.manifest.name


def random_adapter(
    folder: Path,
    *,
    base: Path,
    method: Method,
    position: Position,
    seed: int,
    rank: int = 8,
    sites: tuple[str, ...] = PROJECTIONS,
) -> Adapter:
    rng = np.random.default_rng(seed)
    shape = served_base(base, max_rank=rank)
    tensors: dict[str, np.ndarray] = {}
    for layer in range(shape.layers):
        at = f"base_model.model.model.layers.{layer}"
        if method == "lora":
            for site in sites:
                width_in, width_out = shape.widths[site]
                tensors[f"{at}.{site}.lora_A.weight"] = _normal(rng, width_in**-0.5, rank, width_in)
                tensors[f"{at}.{site}.lora_B.weight"] = _normal(rng, 0.02, width_out, rank)
        elif method == "direft":
            tensors[f"{at}.direft_A.weight"] = _normal(rng, shape.hidden**-0.5, rank, shape.hidden)
            tensors[f"{at}.direft_A.bias"] = _normal(rng, 2.0, rank)
            tensors[f"{at}.direft_B.weight"] = _normal(rng, 0.1, shape.hidden, rank)
        else:
            rows = np.linalg.qr(rng.normal(size=(shape.hidden, rank)))[0].T
            tensors[f"{at}.loreft_R.weight"] = np.ascontiguousarray(rows, dtype=np.float32)
            tensors[f"{at}.loreft_W.weight"] = _normal(rng, shape.hidden**-0.5, rank, shape.hidden)
            tensors[f"{at}.loreft_W.bias"] = _normal(rng, 2.0, rank)
    plain = method == "lora" and position == "all"
    manifest = adapter_write(
        folder,
        tensors=tensors,
        config={"peft_type": "LORA" if plain else _PEFT_TYPE[method], "r": rank},
        base=BaseRef(digest=base_digest(base), name=base.name),
        method=method,
        position=position,
        rank=rank,
        scale=scale_of(method, rank),
        training={},
    )
    return Adapter(manifest, tensors, folder)


def _normal(rng: np.random.Generator, scale: float, *shape: int) -> np.ndarray:
    return rng.normal(scale=scale, size=shape).astype(np.float32)
