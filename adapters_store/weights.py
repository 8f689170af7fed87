"""Reading and writing an adapter's folder. Nothing is believed: size, digest, header, shapes, numbers are checked."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

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


def adapter_pack(
    *,
    tensors: Mapping[str, np.ndarray],
    config: Mapping[str, Any],
    base: BaseRef,
    method: Method,
    position: Position,
    rank: int,
    scale: float,
    training: Mapping[str, Any],
) -> tuple[Manifest, dict[str, bytes]]:
    """An adapter's manifest and, by name, its three files.

    `tensors` maps PEFT-style names to float32 arrays (docs/adapter-format.md); `config` is adapter_config.json, which
    is there for PEFT and for people: engines rebuild what they need from the manifest.
    """
    arrays = {name: np.ascontiguousarray(array, dtype=np.float32) for name, array in sorted(tensors.items())}
    files = {
        TENSORS_FILE: save(arrays),
        CONFIG_FILE: (json.dumps(config, indent=2, sort_keys=True) + "\n").encode(),
    }
    manifest = Manifest(
        base=base,
        method=method,
        position=position,
        rank=rank,
        scale=scale,
        convention=CONVENTION[method],
        tensors={name: Tensor(shape=array.shape) for name, array in arrays.items()},
        files={TENSORS_FILE: _file_ref(files[TENSORS_FILE]), CONFIG_FILE: _file_ref(files[CONFIG_FILE])},
        training=dict(training),
    )
    sites_of(manifest)
    return manifest, files | {MANIFEST_FILE: manifest_dump(manifest)}


def adapter_write(folder: Path, **facts: Any) -> Manifest:
    """Write the three files of an adapter, from what adapter_pack takes, and return its manifest."""
    manifest, files = adapter_pack(**facts)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return manifest


def adapter_read(
    folder: Path, *, expected_digest: str | None = None
) -> tuple[Manifest, dict[str, np.ndarray]]:
    """Read and verify an adapter's folder: its manifest and float32 arrays by name.

    Raises AdapterMissing if a file is not there, AdapterCorrupt if anything is not as the manifest (or, with
    `expected_digest`, the name the adapter was asked for) says.
    """
    manifest = manifest_read(folder)
    _check_identity(manifest, expected_digest)
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


def adapter_unpack(
    manifest_data: bytes, tensors_data: bytes, *, expected_digest: str | None = None
) -> tuple[Manifest, dict[str, np.ndarray]]:
    """As adapter_read, from the bytes of manifest and tensors. Raises AdapterCorrupt."""
    manifest = manifest_load(manifest_data)
    _check_identity(manifest, expected_digest)
    if _file_ref(tensors_data) != manifest.files[TENSORS_FILE]:
        raise AdapterCorrupt(f"{TENSORS_FILE} does not have the size and sha256 that the manifest says.")
    try:
        arrays = load(tensors_data)
    except SafetensorError:
        raise AdapterCorrupt(f"{TENSORS_FILE} is not a valid safetensors file.") from None
    if set(arrays) != set(manifest.tensors):
        raise AdapterCorrupt(f"{TENSORS_FILE} does not hold the tensors that the manifest lists.")
    for name, spec in manifest.tensors.items():
        _check_spec(name, "F32" if arrays[name].dtype == np.float32 else "", arrays[name].shape, spec)
        _check_finite(name, arrays[name])
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


def _file_ref(data: bytes) -> FileRef:
    return FileRef(sha256=hashlib.sha256(data).hexdigest(), size=len(data))


def _check_identity(manifest: Manifest, expected_digest: str | None) -> None:
    if expected_digest is not None and manifest.digest != expected_digest:
        raise AdapterCorrupt("The adapter's manifest does not have the digest that its name promises.")
    sites_of(manifest)


def _check_file(path: Path, expected: FileRef) -> None:
    try:
        right = path.stat().st_size == expected.size and file_sha256(path) == expected.sha256
    except FileNotFoundError:
        raise AdapterMissing(f"The adapter's folder has no {path.name}.") from None
    if not right:
        raise AdapterCorrupt(f"{path.name} does not have the size and sha256 that the manifest says.")


def _tensor(file: Any, name: str, spec: Tensor) -> np.ndarray:
    stored = file.get_slice(name)
    _check_spec(name, stored.get_dtype(), tuple(stored.get_shape()), spec)
    array: np.ndarray = file.get_tensor(name)
    _check_finite(name, array)
    return array


def _check_spec(name: str, dtype: str, shape: tuple[int, ...], spec: Tensor) -> None:
    if (dtype, shape) != (spec.dtype, spec.shape):
        raise AdapterCorrupt(f"Tensor {name} does not have the dtype and shape that the manifest says.")


def _check_finite(name: str, array: np.ndarray) -> None:
    if not np.isfinite(array).all():
        raise AdapterCorrupt(f"Tensor {name} holds a value that is not a finite number.")
