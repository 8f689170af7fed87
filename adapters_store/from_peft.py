"""python -m adapters_store.from_peft FOLDER --base FOLDER --out FOLDER: an adapter of PEFT's own into our format.

A plain LoRA that PEFT saved becomes an adapter for all positions, which is where it acts. Back there is nothing to do:
stock PEFT loads what is written here as it is. Whatever would make it another function is refused by name.
"""

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize

from adapters_store.base import base_digest
from adapters_store.errors import AdapterCorrupt, AdapterError, AdapterMissing, AdapterUnsupported
from adapters_store.manifest import CONFIG_FILE, TENSORS_FILE, BaseRef, Manifest
from adapters_store.peft_config import PLAIN_OPTIONS, plain_lora
from adapters_store.preft.config import PROJECTIONS
from adapters_store.weights import adapter_write

#: What PEFT takes where adapter_config.json says nothing.
_ALPHA = 8
_TENSOR = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<part>A|B)\.weight")


def adapter_import(folder: Path, out: Path, *, base: BaseRef) -> Manifest:
    """Read the LoRA that PEFT saved in `folder` and write it to `out` as an adapter of `base` for all positions.

    An adapter of ours has one rank and one scale. Where patterns give sites different ones, zeros fill up the ranks,
    each site's scale is part of its B, and the adapter's is 1. Raises AdapterMissing, AdapterUnsupported (not a plain
    LoRA of the seven projections; the message has the option's name) and AdapterCorrupt. Whether its widths are the
    base's is for whoever loads it.
    """
    try:
        options = plain_lora((folder / CONFIG_FILE).read_bytes())
    except FileNotFoundError:
        raise AdapterMissing(
            f"{folder} is not an adapter that PEFT saved: it has no {CONFIG_FILE}."
        ) from None
    tensors = _tensors(folder)
    ranks = {
        match["module"]: tensor.shape[1]
        for name, tensor in tensors.items()
        if (match := _TENSOR.fullmatch(name)) and match["part"] == "B" and tensor.ndim == 2
    }
    scales = {module: _scale(options, module, rank) for module, rank in ranks.items()}
    rank = max(ranks.values(), default=1)
    config = {name: value for name, value in options.items() if name in PLAIN_OPTIONS}
    if {*ranks.values()} == {rank} and len({*scales.values()}) == 1:
        scale = scales.popitem()[1]
    else:
        scale = 1.0
        for module, own in scales.items():
            a, b = (f"base_model.model.{module}.lora_{part}.weight" for part in "AB")
            more = rank - ranks[module]
            if a in tensors and tensors[a].ndim == 2:  # adapter_write refuses what is no site
                tensors[a] = np.pad(tensors[a], ((0, more), (0, 0)))
            tensors[b] = np.pad(tensors[b], ((0, 0), (0, more))) * np.float32(own)
        config |= {
            "r": rank,
            "lora_alpha": rank,
            "use_rslora": False,
            "rank_pattern": {},
            "alpha_pattern": {},
        }
    return adapter_write(
        out,
        tensors=tensors,
        config=config,
        base=base,
        method="lora",
        position="all",
        rank=rank,
        scale=scale,
        training={"imported": "PEFT", "peft_version": str(options.get("peft_version"))[:40]},
    )


def _scale(options: Mapping[str, Any], module: str, rank: int) -> float:
    """Alpha over the rank, or over its root; the first pattern that is the module's name or ends it gives the alpha."""
    try:
        alpha = options.get("lora_alpha", _ALPHA)
        for pattern, own in (options.get("alpha_pattern") or {}).items():
            if re.fullmatch(rf"(.*\.)?({pattern})", module):
                alpha = own
                break
        scale = float(alpha / rank**0.5 if options.get("use_rslora") else alpha / rank)
    except (ArithmeticError, AttributeError, TypeError, re.error):
        scale = 0.0
    if not 0 < scale < float("inf"):
        raise AdapterCorrupt(f"lora_alpha and alpha_pattern of {CONFIG_FILE} give {module[:120]} no scale.")
    return scale


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
