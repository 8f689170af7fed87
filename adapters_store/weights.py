"""Reading and writing an adapter's folder. Nothing is believed: size, digest, header, shapes, numbers are checked."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from adapters_store.errors import AdapterCorrupt, AdapterMissing
from adapters_store.manifest import (
    CONFIG_FILE,
    MANIFEST_FILE,
    MAX_MANIFEST_BYTES,
    TENSORS_FILE,
    BaseRef,
    FileRef,
    Manifest,
    Tensor,
    manifest_dump,
    manifest_load,
)
from adapters_store.names import Method, Position
from adapters_store.preft.config import CONVENTION
from adapters_store.sites import sites_of


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def adapter_write(
    folder: Path,
    *,
    tensors: Mapping[str, np.ndarray],
    config: Mapping[str, Any],
    base: BaseRef,
    method: Method,
    position: Position,
    rank: int,
    scale: float,
    training: Mapping[str, Any],
) -> Manifest:
    """Write the three files of an adapter and return its manifest.

    `tensors` maps PEFT-style names to float32 arrays (docs/adapter-format.md); `config` is adapter_config.json, which
    is there for PEFT and for people: engines rebuild what they need from the manifest.
    """
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {name: np.ascontiguousarray(array, dtype=np.float32) for name, array in sorted(tensors.items())}
    save_file(arrays, folder / TENSORS_FILE)
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    manifest = Manifest(
        base=base,
        method=method,
        position=position,
        rank=rank,
        scale=scale,
        convention=CONVENTION[method],
        tensors={name: Tensor(shape=array.shape) for name, array in arrays.items()},
        files={
            TENSORS_FILE: _file_ref(folder / TENSORS_FILE),
            CONFIG_FILE: _file_ref(folder / CONFIG_FILE),
        },
        training=dict(training),
    )
    sites_of(manifest)
    (folder / MANIFEST_FILE).write_bytes(manifest_dump(manifest))
    return manifest


def adapter_read(
    folder: Path, *, expected_digest: str | None = None
) -> tuple[Manifest, dict[str, np.ndarray]]:
    """Read and verify an adapter's folder: its manifest and float32 arrays by name.

    Raises AdapterMissing if a file is not there, AdapterCorrupt if anything is not as the manifest (or, with
    `expected_digest`, the name the adapter was asked for) says.
    """
    manifest = manifest_read(folder)
    if expected_digest is not None and manifest.digest != expected_digest:
        raise AdapterCorrupt("The adapter's manifest does not have the digest that its name promises.")
    sites_of(manifest)
    path = folder / TENSORS_FILE
    _check_file(path, manifest.files[TENSORS_FILE])
    try:
        with safe_open(path, framework="numpy") as file:
            if set(file.keys()) != set(manifest.tensors):
                raise AdapterCorrupt(f"{TENSORS_FILE} does not hold the tensors that the manifest lists.")
            arrays = {name: _tensor(file, name, spec) for name, spec in manifest.tensors.items()}
    except SafetensorError:
        raise AdapterCorrupt(f"{TENSORS_FILE} is not a valid safetensors file.") from None
    return manifest, arrays


def manifest_read(folder: Path) -> Manifest:
    """The manifest of an adapter's folder; raises AdapterMissing or AdapterCorrupt."""
    path = folder / MANIFEST_FILE
    try:
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise AdapterCorrupt(f"{MANIFEST_FILE} is larger than {MAX_MANIFEST_BYTES} bytes.")
        return manifest_load(path.read_bytes())
    except FileNotFoundError:
        raise AdapterMissing(f"The adapter's folder has no {MANIFEST_FILE}.") from None


def _file_ref(path: Path) -> FileRef:
    return FileRef(sha256=file_sha256(path), size=path.stat().st_size)


def _check_file(path: Path, expected: FileRef) -> None:
    try:
        right = path.stat().st_size == expected.size and file_sha256(path) == expected.sha256
    except FileNotFoundError:
        raise AdapterMissing(f"The adapter's folder has no {path.name}.") from None
    if not right:
        raise AdapterCorrupt(f"{path.name} does not have the size and sha256 that the manifest says.")


def _tensor(file: Any, name: str, spec: Tensor) -> np.ndarray:
    stored = file.get_slice(name)
    if stored.get_dtype() != spec.dtype or tuple(stored.get_shape()) != spec.shape:
        raise AdapterCorrupt(f"Tensor {name} does not have the dtype and shape that the manifest says.")
    array: np.ndarray = file.get_tensor(name)
    if not np.isfinite(array).all():
        raise AdapterCorrupt(f"Tensor {name} holds a value that is not a finite number.")
    return array
