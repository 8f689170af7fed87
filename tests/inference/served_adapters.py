"""Adapters of every method for the real demo model: random, and strong enough that greedy answers change."""

from pathlib import Path

import numpy as np

from adapters_store.manifest import BaseRef, Manifest
from adapters_store.names import Method, Position
from adapters_store.preft.config import scale_of
from adapters_store.weights import adapter_write
from inference.adapter_checks import ServedBase

_SITE = "base_model.model.model.layers.{}."


def adapter_make(
    folder: Path,
    base: ServedBase,
    method: Method,
    position: Position,
    *,
    seed: int,
    rank: int = 8,
    base_digest: str | None = None,
) -> Manifest:
    """Write an adapter that fits `base`; `base_digest` claims another base."""
    return adapter_write(
        folder,
        tensors=_TENSORS[method](base, rank, np.random.default_rng(seed)),
        config={"peft_type": method.upper()},
        base=BaseRef(digest=base_digest or base.digest, name=base.name if base_digest is None else "another-base"),
        method=method,
        position=position,
        rank=rank,
        scale=scale_of(method, rank),
        training={},
    )


def _lora(base: ServedBase, rank: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    tensors = {}
    for layer in range(base.layers):
        for site, (width_in, width_out) in base.widths.items():
            name = f"{_SITE.format(layer)}{site}.lora_"
            tensors[f"{name}A.weight"] = _normal(rng, (rank, width_in), 1 / np.sqrt(width_in))
            tensors[f"{name}B.weight"] = _normal(rng, (width_out, rank), 0.02)
    return tensors


def _direft(base: ServedBase, rank: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    tensors = {}
    for layer in range(base.layers):
        name = f"{_SITE.format(layer)}direft_"
        tensors[f"{name}A.weight"] = _normal(rng, (rank, base.hidden), 1 / np.sqrt(base.hidden))
        tensors[f"{name}A.bias"] = _normal(rng, (rank,), 1.0)
        tensors[f"{name}B.weight"] = _normal(rng, (base.hidden, rank), 0.1)
    return tensors


def _loreft(base: ServedBase, rank: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    tensors = {}
    for layer in range(base.layers):
        name = f"{_SITE.format(layer)}loreft_"
        rows = np.linalg.qr(rng.normal(size=(base.hidden, rank)))[0].T
        tensors[f"{name}R.weight"] = rows.astype(np.float32)
        tensors[f"{name}W.weight"] = (rows + rng.normal(size=rows.shape) * 0.01).astype(np.float32)
        tensors[f"{name}W.bias"] = _normal(rng, (rank,), 1.0)
    return tensors


def _normal(rng: np.random.Generator, shape: tuple[int, ...], sigma: float) -> np.ndarray:
    return (rng.normal(size=shape) * sigma).astype(np.float32)


_TENSORS = {"lora": _lora, "direft": _direft, "loreft": _loreft}
