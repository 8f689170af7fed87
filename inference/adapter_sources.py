"""Where adapters come from: a tenant's objects in S3, or folders on this machine. Nothing is believed."""

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from adapters_store.errors import AdapterCorrupt, AdapterError, AdapterMissing, AdapterUnsupported, BadName
from adapters_store.manifest import (
    CONFIG_FILE,
    MANIFEST_FILE,
    MAX_MANIFEST_BYTES,
    TENSORS_FILE,
    Manifest,
    manifest_load,
)
from adapters_store.names import ServingName, parse_name
from adapters_store.peft_config import plain_lora
from adapters_store.weights import adapter_read
from inference.adapter_checks import ServedBase, check_servable

if TYPE_CHECKING:
    from adapters_store.s3 import ObjectStore

#: One path component, not hidden: the only folder names that a request can reach.
_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class AdapterSource(Protocol):
    """Blocking; called in a thread."""

    def name_of(self, model: str) -> ServingName | None:
        """The adapter that `model` means here, or None if it cannot be one of this source's."""

    def fetch(self, model: str, name: ServingName, folder: Path, base: ServedBase) -> None:
        """Fill an empty folder with the verified files, or raise AdapterError; nothing unservable gets past."""


class StorageSource:
    """`<tenant>/ap-<digest>`: the manifest at its key, the files at the keys that their sha256 gives."""

    def __init__(self, store: "ObjectStore") -> None:
        self._store = store

    def name_of(self, model: str) -> ServingName | None:
        try:
            name = parse_name(model)
        except BadName:
            return None
        return name if name.tenant is not None else None

    def fetch(self, model: str, name: ServingName, folder: Path, base: ServedBase) -> None:
        from adapters_store.s3 import manifest_key, object_key

        assert name.tenant is not None
        try:
            data = self._store.get(manifest_key(name.tenant, name.name), MAX_MANIFEST_BYTES)
        except AdapterMissing:
            raise AdapterMissing(f"The adapter {model} does not exist.") from None
        manifest = _manifest(data, name, base)
        for file, ref in sorted(manifest.files.items()):
            try:
                key = object_key(name.tenant, ref.sha256)
                self._store.get_to_file(key, folder / file, sha256=ref.sha256, size=ref.size)
            except AdapterMissing:
                raise _refused(name, file, "it is not in storage") from None
            except AdapterCorrupt as error:
                raise _refused(name, file, error.message) from None
        (folder / MANIFEST_FILE).write_bytes(data)
        _verify(folder, name)


class FolderSource:
    """Adapter folders below `root`, asked for by the folder's name, which may be the serving name."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def name_of(self, model: str) -> ServingName | None:
        """Reads the folder's manifest, so that an alias always means what is in the folder now."""
        folder = self._folder(model)
        if folder is None:
            return None
        if not (folder / MANIFEST_FILE).exists() and (folder / CONFIG_FILE).exists():
            raise _plain(folder)
        try:
            manifest = manifest_load(_read(folder / MANIFEST_FILE, MAX_MANIFEST_BYTES))
        except AdapterCorrupt as error:
            raise AdapterCorrupt(f"The adapter {model} is refused: {error.message}") from None
        return parse_name(manifest.name)

    def fetch(self, model: str, name: ServingName, folder: Path, base: ServedBase) -> None:
        source = self._folder(model)
        if source is None:
            raise AdapterMissing(f"The adapter {model} does not exist.")
        data = _read(source / MANIFEST_FILE, MAX_MANIFEST_BYTES)
        manifest = _manifest(data, name, base)
        for file, ref in manifest.files.items():
            (folder / file).write_bytes(_read(source / file, ref.size))
        (folder / MANIFEST_FILE).write_bytes(data)
        _verify(folder, name)

    def _folder(self, model: str) -> Path | None:
        """The folder that `model` names, only if it truly lies in root: no separators, no dots first, no links."""
        if _FOLDER.fullmatch(model) is None:
            return None
        folder = self._root / model
        if folder.is_symlink() or not folder.is_dir() or folder.resolve().parent != self._root:
            return None
        return folder


def _manifest(data: bytes, name: ServingName, base: ServedBase) -> Manifest:
    """The manifest, if it is the one that the name promises and this engine can serve it."""
    try:
        manifest = manifest_load(data)
    except AdapterCorrupt as error:
        raise _refused(name, MANIFEST_FILE, error.message) from None
    if manifest.name != name.name:
        raise _refused(name, MANIFEST_FILE, f"it describes {manifest.name}")
    check_servable(manifest, base)
    return manifest


def _plain(folder: Path) -> AdapterError:
    """Why a folder that is PEFT's alone is not served here: for what it holds, or for not telling its base."""
    try:
        plain_lora(_read(folder / CONFIG_FILE, MAX_MANIFEST_BYTES))
    except AdapterError as error:
        return type(error)(f"The adapter {folder.name} is refused: {error.message}")
    return AdapterUnsupported(
        f"The adapter {folder.name} is refused: PEFT's own folders do not say which base's bytes they were trained on. "
        "python -m adapters_store.from_peft makes an adapter of it."
    )


def _verify(folder: Path, name: ServingName) -> None:
    try:
        adapter_read(folder, expected_digest=name.digest)
    except AdapterCorrupt as error:
        raise _refused(name, TENSORS_FILE, error.message) from None


def _refused(name: ServingName, file: str, why: str) -> AdapterCorrupt:
    return AdapterCorrupt(f"The adapter {name} is refused, its {file} is corrupt: {why.rstrip('.')}.")


def _read(path: Path, max_bytes: int) -> bytes:
    """A regular file's bytes, never through a link; raises AdapterMissing or AdapterCorrupt."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise AdapterMissing(
            f"The folder {path.parent.name} has no {path.name}, so it is no adapter."
        ) from None
    except OSError:
        raise AdapterCorrupt(f"{path.name} of {path.parent.name} is not a regular file.") from None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise AdapterCorrupt(f"{path.name} of {path.parent.name} is not a regular file.")
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise AdapterCorrupt(f"{path.name} of {path.parent.name} is larger than its manifest allows.")
    return data
