"""From an Attune adapter's folder to the matrices that vLLM's LoRA loader wants."""

from pathlib import Path

import numpy as np

from adapters_store.errors import AdapterCorrupt
from adapters_store.manifest import MANIFEST_FILE, Manifest
from adapters_store.names import parse_name
from adapters_store.weights import adapter_read
from inference.residual import SITE

#: How far R·Rᵀ of a LoReFT adapter may be from the identity (float32 training leaves about 1e-6).
ORTHONORMAL_WITHIN = 1e-3

Matrices = dict[str, np.ndarray]


def is_attune_folder(folder: Path) -> bool:
    return (folder / MANIFEST_FILE).exists()


def vllm_matrices(folder: Path, name: str) -> tuple[Manifest, Matrices]:
    """Read, verify and convert the adapter that `name` (a serving name, with or without tenant) promises.

    Returns the manifest and float32 arrays named as PEFT names LoRA's: `<site>.lora_A.weight` [r, in] and
    `<site>.lora_B.weight` [out, r] with the method's scale in B, so that what vLLM computes is x·Aᵀ·Bᵀ. For the ReFT
    methods the site is SITE and A has one more column, the bias. Raises AdapterMissing or AdapterCorrupt.
    """
    manifest, tensors = adapter_read(folder, expected_digest=parse_name(name).digest)
    if manifest.method == "lora":
        return manifest, _lora(tensors, manifest.scale)
    layers = sorted({key.rpartition(f".{manifest.method}_")[0] for key in tensors})
    matrices: Matrices = {}
    for layer in layers:
        a, bias, b = _DELTA[manifest.method](tensors, layer)
        matrices[f"{layer}.{SITE}.lora_A.weight"] = np.concatenate([a, bias[:, None]], axis=1)
        matrices[f"{layer}.{SITE}.lora_B.weight"] = np.ascontiguousarray(b) * np.float32(manifest.scale)
    return manifest, matrices


def _lora(tensors: Matrices, scale: float) -> Matrices:
    factor = np.float32(scale)
    return {key: value * factor if ".lora_B." in key else value for key, value in tensors.items()}


def _direft(tensors: Matrices, layer: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """h + s·B(A·h + b): A [r, d], b [r], B [d, r]."""
    return (
        tensors[f"{layer}.direft_A.weight"],
        tensors[f"{layer}.direft_A.bias"],
        tensors[f"{layer}.direft_B.weight"],
    )


def _loreft(tensors: Matrices, layer: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """h + s·Rᵀ(W·h + b - R·h) is DiReFT with A = W - R and B = Rᵀ."""
    r = tensors[f"{layer}.loreft_R.weight"]
    if np.abs(r @ r.T - np.eye(len(r), dtype=np.float32)).max() > ORTHONORMAL_WITHIN:
        raise AdapterCorrupt(f"{layer}.loreft_R.weight does not have orthonormal rows.")
    return tensors[f"{layer}.loreft_W.weight"] - r, tensors[f"{layer}.loreft_W.bias"], r.T


_DELTA = {"direft": _direft, "loreft": _loreft}
