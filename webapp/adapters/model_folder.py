"""What a base model's folder says about itself, read without torch. Wrong folders are refused with what to do."""

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from adapters_store.architectures import PROVEN
from adapters_store.base import base_digest, chat_template
from adapters_store.errors import AdapterMissing
from webapp.config.faults import BadRequest

#: Engine and trainer hold the weights once each, as float32 on a CPU; the rest is libraries and a small KV cache.
_BYTES_A_PARAMETER = 4
_COPIES = 2
_OVERHEAD_BYTES = 3 << 30


@dataclass(frozen=True)
class ModelFolder:
    digest: str
    architecture: str
    context_length: int
    layers: int
    parameters: int

    @property
    def memory_bytes(self) -> int:
        """An estimate for one machine that serves and trains."""
        return _memory_bytes(self.parameters)


def model_config_read(folder: Path) -> tuple[str, int, int]:
    """Architecture, context length and number of decoder layers, from the small files alone.

    Raises BadRequest for what cannot be served.
    """
    config = _json(folder / "config.json")
    architecture = next(iter(config.get("architectures") or []), "unknown")
    if architecture not in PROVEN:
        raise BadRequest(
            f"The architecture {architecture} is not supported. Supported are: {', '.join(sorted(PROVEN))}.",
            code="unsupported_architecture",
        )
    if not chat_template(folder).strip():
        raise BadRequest(
            "The model has no chat template, so it is not a chat model. Use its instruct variant, or put a "
            "chat_template.jinja into the folder.",
            code="no_chat_template",
        )
    context = config.get("max_position_embeddings")
    if not isinstance(context, int) or context < 128:
        raise BadRequest("config.json has no usable max_position_embeddings.", code="bad_model_folder")
    layers = config.get("num_hidden_layers")
    if not isinstance(layers, int) or layers < 1:
        raise BadRequest("config.json has no usable num_hidden_layers.", code="bad_model_folder")
    return architecture, context, layers


def model_folder_read(folder: Path) -> ModelFolder:
    """Raises BadRequest for a folder that cannot become a base model."""
    architecture, context, layers = model_config_read(folder)
    try:
        digest = base_digest(folder)
    except AdapterMissing as error:
        raise BadRequest(error.message, code="bad_model_folder") from None
    parameters = sum(_parameters(path) for path in folder.glob("*.safetensors"))
    return ModelFolder(digest, architecture, context, layers, parameters)


def check_size(weight_bytes: int) -> None:
    """Raises BadRequest if weights of this size on disk, in no wider type than float32, are too large for certain."""
    _check_memory(_memory_bytes(weight_bytes // _BYTES_A_PARAMETER), "at least")


def check_memory(model: ModelFolder) -> None:
    """Raises BadRequest if this machine cannot hold it. A machine with an NVIDIA driver is not judged by its RAM."""
    _check_memory(model.memory_bytes, "about")


def _memory_bytes(parameters: int) -> int:
    return parameters * _BYTES_A_PARAMETER * _COPIES + _OVERHEAD_BYTES


def _check_memory(needed: int, how: str) -> None:
    total = _machine_bytes()
    if total is None or Path("/proc/driver/nvidia").exists() or needed <= total:
        return
    raise BadRequest(
        f"Serving and training this model takes {how} {needed / 1e9:.0f} GB of memory; this machine has "
        f"{total / 1e9:.0f} GB. Use a smaller model, or say --elsewhere if engine and trainer run on other machines.",
        code="not_enough_memory",
    )


def _machine_bytes() -> int | None:
    try:
        line = next(
            line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal")
        )
    except (OSError, StopIteration):
        return None
    return int(line.split()[1]) * 1024


def _parameters(path: Path) -> int:
    """From the safetensors header alone."""
    try:
        with safe_open(path, framework="numpy") as file:
            return sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118 (no mapping)
    except SafetensorError:
        raise BadRequest(f"{path.name} is not a valid safetensors file.", code="bad_model_folder") from None


def _json(path: Path) -> dict[str, Any]:
    try:
        loaded = json.loads(path.read_text())
    except (OSError, ValueError):
        raise BadRequest(
            f"{path.parent.name} is not a model folder: it has no readable {path.name}.",
            code="bad_model_folder",
        ) from None
    return loaded if isinstance(loaded, dict) else {}
