"""The identity of a base model: the bytes that decide what it computes and how text becomes tokens."""

import hashlib
import json
from pathlib import Path

from adapters_store.errors import AdapterMissing
from adapters_store.manifest import canonical_json
from adapters_store.weights import file_sha256

_CACHE = ".attune-digests.json"


def base_digest(folder: Path) -> str:
    """sha256 over weights (every *.safetensors), config, tokenizer and chat template of a model's folder, as hex.

    File digests are remembered beside the files by size and modification time (a large model takes minutes to read);
    a folder that cannot be written to is read each time. Raises AdapterMissing when there is no model there.
    """
    weights = sorted(folder.glob("*.safetensors"))
    if not weights or not (folder / "tokenizer.json").exists():
        raise AdapterMissing(
            f"{folder.name} is not a model folder: it needs *.safetensors and tokenizer.json."
        )
    known = _load(folder / _CACHE)
    fresh = {path.name: _remembered(path, known) for path in [*weights, folder / "tokenizer.json"]}
    if fresh != known:
        _store(folder / _CACHE, fresh)
    identity = {
        "files": {name: entry["sha256"] for name, entry in fresh.items()},
        "config": _config(folder),
        "chat_template": hashlib.sha256(chat_template(folder).encode()).hexdigest(),
    }
    return hashlib.sha256(canonical_json(identity)).hexdigest()


def chat_template(folder: Path) -> str:
    """The model's chat template, from chat_template.jinja or tokenizer_config.json; empty if it has none."""
    file = folder / "chat_template.jinja"
    if file.exists():
        return file.read_text()
    config = _load(folder / "tokenizer_config.json")
    template = config.get("chat_template", "")
    return template if isinstance(template, str) else ""


def _config(folder: Path) -> dict[str, object]:
    """config.json without what only records how the file came to be."""
    notes = {"transformers_version", "_name_or_path", "_model_name_or_path"}
    return {key: value for key, value in _load(folder / "config.json").items() if key not in notes}


def _remembered(path: Path, known: dict[str, dict[str, object]]) -> dict[str, object]:
    stat = path.stat()
    entry = known.get(path.name, {})
    if (entry.get("size"), entry.get("mtime_ns")) == (stat.st_size, stat.st_mtime_ns):
        return entry
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": file_sha256(path)}


def _load(path: Path) -> dict[str, dict[str, object]]:
    try:
        loaded = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _store(path: Path, digests: dict[str, dict[str, object]]) -> None:
    try:
        path.write_text(json.dumps(digests))
    except OSError:
        return
