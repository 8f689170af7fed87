"""python -m adapters_store.from_peft FOLDER --base FOLDER --out FOLDER: an adapter of PEFT's own into our format.

A plain LoRA that PEFT saved becomes an adapter for all positions, which is where it acts. Back there is nothing to do:
stock PEFT loads what is written here as it is. Whatever would make it another function is refused by name.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize

from adapters_store.base import base_digest
from adapters_store.errors import AdapterCorrupt, AdapterError, AdapterMissing, AdapterUnsupported
from adapters_store.manifest import CONFIG_FILE, TENSORS_FILE, BaseRef, Manifest
from adapters_store.preft.config import PROJECTIONS
from adapters_store.weights import adapter_write

#: Values of init_lora_weights that leave the base model as it is.
PLAIN_STARTS = (True, False, None, "gaussian", "eva", "orthogonal")
#: What says where a LoRA acts (its tensors say it too), how it was trained, or how PEFT handled it.
_HARMLESS = {
    "peft_type",
    "peft_version",
    "auto_mapping",
    "base_model_name_or_path",
    "revision",
    "inference_mode",
    "task_type",
    "r",
    "lora_alpha",
    "use_rslora",
    "lora_dropout",
    "init_lora_weights",
    "target_modules",
    "exclude_modules",
    "layers_to_transform",
    "layers_pattern",
    # Of options that are off, or of starts and training alone.
    "qalora_group_size",
    "megatron_core",
    "eva_config",
}


def adapter_import(folder: Path, out: Path, *, base: BaseRef) -> Manifest:
    """Read the LoRA that PEFT saved in `folder` and write it to `out` as an adapter of `base` for all positions.

    Raises AdapterMissing, AdapterUnsupported (not a plain LoRA of the seven projections; the message has the option's
    name) and AdapterCorrupt. Whether its widths are the base's is for whoever loads it.
    """
    config = _config(folder)
    rank, scale = _rank_and_scale(config)
    return adapter_write(
        out,
        tensors=_tensors(folder),
        config={name: value for name, value in config.items() if name in _HARMLESS},
        base=base,
        method="lora",
        position="all",
        rank=rank,
        scale=scale,
        training={"imported": "PEFT", "peft_version": str(config.get("peft_version"))[:40]},
    )


def _config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / CONFIG_FILE).read_bytes())
    except FileNotFoundError:
        raise AdapterMissing(
            f"{folder} is not an adapter that PEFT saved: it has no {CONFIG_FILE}."
        ) from None
    except ValueError:
        raise AdapterCorrupt(f"{CONFIG_FILE} is not JSON.") from None
    if not isinstance(config, dict):
        raise AdapterCorrupt(f"{CONFIG_FILE} is not a JSON object.")
    kind = config.get("peft_type")
    if kind != "LORA":
        raise AdapterUnsupported(f"Only PEFT's plain LoRA is imported, and this is {str(kind)[:40]}.")
    unknown = [
        name
        for name, value in config.items()
        if value and name not in _HARMLESS and (name, value) != ("bias", "none")
    ]
    if config.get("init_lora_weights", True) not in PLAIN_STARTS:
        unknown.append("init_lora_weights")
    if unknown:
        raise AdapterUnsupported(
            f"Only plain LoRA is imported: {', '.join(sorted(unknown))[:300]} would make this adapter another one."
        )
    return config


def _rank_and_scale(config: Mapping[str, Any]) -> tuple[int, float]:
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not isinstance(rank, int) or not 1 <= rank <= 256:
        raise AdapterUnsupported(f"{CONFIG_FILE} has no r from 1 to 256.")
    if not isinstance(alpha, int | float) or not 0 < alpha < float("inf"):
        raise AdapterUnsupported(f"{CONFIG_FILE} has no lora_alpha above 0.")
    return rank, alpha / (rank**0.5 if config.get("use_rslora") else rank)


def _tensors(folder: Path) -> dict[str, np.ndarray]:
    try:
        stored: list[tuple[str, dict[str, Any]]] = deserialize(  # type: ignore[no-untyped-call]
            (folder / TENSORS_FILE).read_bytes()
        )
    except FileNotFoundError:
        raise AdapterMissing(
            f"{folder} has no {TENSORS_FILE}. Load it with PEFT and save it again, which writes one."
        ) from None
    except SafetensorError:
        raise AdapterCorrupt(f"{TENSORS_FILE} is not a valid safetensors file.") from None
    tensors = {}
    for name, tensor in stored:
        if not any(f".{site}.lora_" in name for site in PROJECTIONS):
            raise AdapterUnsupported(
                f"Only LoRA of the seven projections is imported, and this has {name[:120]}."
            )
        tensors[name] = _float32(tensor["dtype"], tensor["data"]).reshape(tensor["shape"])
    if not all(np.isfinite(tensor).all() for tensor in tensors.values()):
        raise AdapterCorrupt(f"{TENSORS_FILE} holds a value that is not a finite number.")
    return tensors


def _float32(dtype: str, data: bytes) -> np.ndarray:
    """numpy has no bfloat16: it is the upper half of a float32."""
    if dtype == "BF16":
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    if dtype not in ("F32", "F16"):
        raise AdapterUnsupported(
            f"Tensors of the type {dtype} are not imported; save the adapter in float32."
        )
    return np.frombuffer(data, "<f4" if dtype == "F32" else "<f2").astype(np.float32)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m adapters_store.from_peft", description=__doc__)
    parser.add_argument("folder", type=Path, help="what PEFT's save_pretrained wrote")
    parser.add_argument(
        "--base", type=Path, required=True, help="the folder of the base model it was trained on"
    )
    parser.add_argument("--out", type=Path, required=True, help="a folder that is not there yet")
    arguments = parser.parse_args(argv)
    if arguments.out.exists():
        parser.error(f"{arguments.out} is there already: choose another --out, or remove it")
    try:
        base = BaseRef(digest=base_digest(arguments.base), name=arguments.base.name)
        manifest = adapter_import(arguments.folder, arguments.out, base=base)
    except AdapterError as error:
        sys.exit(f"{error.message} ({error.code})")
    print(f"{arguments.out} holds {manifest.name}.")


if __name__ == "__main__":
    main()
