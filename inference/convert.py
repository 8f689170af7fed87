"""From an Attune adapter's folder to the matrices that vLLM's LoRA loader wants."""

from pathlib import Path

import numpy as np
import torch

from adapters_store.errors import AdapterCorrupt
from adapters_store.manifest import MANIFEST_FILE, Manifest
from adapters_store.names import parse_name
from adapters_store.preft.orthonormal import orthonormal_rows
from adapters_store.sites import Site, sites_of
from adapters_store.weights import adapter_read
from inference.residual import SITE

#: How far R·Rᵀ of a LoReFT adapter may be from the identity (float32 training leaves about 1e-6).
ORTHONORMAL_WITHIN = 1e-3

Matrices = dict[str, np.ndarray]


def is_attune_folder(folder: Path) -> bool:
    return (folder / MANIFEST_FILE).exists()


def vllm_matrices(folder: Path, name: str) -> tuple[Manifest, Matrices]:
    """Read, verify and convert the adapter that `name` (a serving name, with or without tenant) promises.

    Returns the manifest and what matrices_of says. Raises AdapterMissing or AdapterCorrupt.
    """
    manifest, tensors = adapter_read(folder, expected_digest=parse_name(name).digest)
    return manifest, matrices_of(manifest, tensors)


def matrices_of(manifest: Manifest, tensors: Matrices) -> Matrices:
    """An adapter's tensors as float32 arrays named as PEFT names LoRA's.

    `<site>.lora_A.weight` [r, in] and `<site>.lora_B.weight` [out, r] with the method's scale in B, so that what vLLM
    computes is x·Aᵀ·Bᵀ. For the ReFT methods the site is SITE and A has one more column, the bias.
    Raises AdapterCorrupt.
    """
    matrices: Matrices = {}
    for site in sites_of(manifest):
        parts = {part: tensors[name] for part, name in site.names.items()}
        a, b = _CONVERT[manifest.method](site, parts)
        at = f"{site.at}.{site.module or SITE}"
        matrices[f"{at}.lora_A.weight"] = a
        matrices[f"{at}.lora_B.weight"] = np.ascontiguousarray(b) * np.float32(manifest.scale)
    return matrices


def _lora(site: Site, parts: Matrices) -> tuple[np.ndarray, np.ndarray]:
    return parts["A"], parts["B"]


def _direft(site: Site, parts: Matrices) -> tuple[np.ndarray, np.ndarray]:
    """h + s·B(A·h + b): A [r, d], b [r], B [d, r]."""
    return np.concatenate([parts["A.weight"], parts["A.bias"][:, None]], axis=1), parts["B.weight"]


def _loreft(site: Site, parts: Matrices) -> tuple[np.ndarray, np.ndarray]:
    """h + s·Rᵀ(W·h + b - R·h) is DiReFT with A = W - R and B = Rᵀ; R is what the trainers make of what is stored."""
    r = parts["R.weight"]
    if np.abs(r @ r.T - np.eye(len(r), dtype=np.float32)).max() > ORTHONORMAL_WITHIN:
        raise AdapterCorrupt(f"{site.names['R.weight']} does not have orthonormal rows.")
    r = orthonormal_rows(torch.from_numpy(r)).numpy()
    return _direft(site, {"A.weight": parts["W.weight"] - r, "A.bias": parts["W.bias"], "B.weight": r.T})


_CONVERT = {"lora": _lora, "direft": _direft, "loreft": _loreft}
