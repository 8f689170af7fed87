"""python -m inference.adapter_import PEFT_FOLDER --base MODEL --out FOLDER: a plain PEFT LoRA as an adapter of ours.

What it computes stays: every site keeps its rank, and the scale that PEFT would multiply by is part of its B. It acts
on every token, as it was trained to. PEFT loads the new folder, too.
"""

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file

from adapters_store.errors import AdapterCorrupt, AdapterError, AdapterMissing
from adapters_store.manifest import CONFIG_FILE, MANIFEST_FILE, TENSORS_FILE, BaseRef, Manifest
from adapters_store.weights import adapter_pack, adapter_unpack
from inference.adapter_checks import ServedBase, check_servable, served_base
from inference.peft_folders import check_plain_lora

#: What PEFT takes where adapter_config.json says nothing.
_ALPHA = 8
_TENSOR = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<part>A|B)\.weight")


def lora_import(source: Path, out: Path, base: ServedBase) -> Manifest:
    """Write the LoRA in `source` to `out`, if an engine of `base` can serve it.

    Raises AdapterError, and has written nothing: adapter_not_found, adapter_unsupported (another method of PEFT's),
    adapter_corrupt (a file, or shapes that are not the base's), adapter_rank_too_high.
    """
    for name in (CONFIG_FILE, TENSORS_FILE):
        if not (source / name).is_file():
            raise AdapterMissing(f"The folder {source.name} has no {name}.")
    options = check_plain_lora((source / CONFIG_FILE).read_bytes())
    try:
        loaded = load_file(source / TENSORS_FILE)
    except SafetensorError:
        raise AdapterCorrupt(f"{TENSORS_FILE} is not a valid safetensors file.") from None
    tensors, ranks = {}, {}
    for name, tensor in loaded.items():
        tensors[name] = tensor.float().numpy()
        match = _TENSOR.fullmatch(name)
        if match is not None and match["part"] == "B" and tensor.ndim == 2:
            ranks[match["module"]] = rank = tensor.shape[1]
            tensors[name] = tensors[name] * np.float32(_scale(options, match["module"], rank))
    rank = max(ranks.values(), default=1)
    others = {module: own for module, own in ranks.items() if own != rank}
    config = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": rank,
        "target_modules": sorted({module.rpartition(".")[2] for module in ranks}),
        "rank_pattern": others,
        "alpha_pattern": others,
    }
    manifest, files = adapter_pack(
        tensors=tensors,
        config=config,
        base=BaseRef(digest=base.digest, name=base.name),
        method="lora",
        position="all",
        rank=rank,
        scale=1.0,
        training={},
    )
    check_servable(manifest, base)
    adapter_unpack(files[MANIFEST_FILE], files[TENSORS_FILE])
    out.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (out / name).write_bytes(data)
    return manifest


def _scale(options: Mapping[str, Any], module: str, rank: int) -> float:
    """Alpha over the rank, or over its root; the first pattern that is the module's name or ends it gives the alpha."""
    try:
        alpha = options.get("lora_alpha", _ALPHA)
        for pattern, own in (options.get("alpha_pattern") or {}).items():
            if re.fullmatch(rf"(.*\.)?({pattern})", module):
                alpha = own
                break
        return float(alpha / rank**0.5 if options.get("use_rslora") else alpha / rank)
    except (ArithmeticError, AttributeError, TypeError, re.error):
        raise AdapterCorrupt(f"{CONFIG_FILE} gives {module[:120]} no scale.") from None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="PEFT's folder")
    parser.add_argument("--base", type=Path, required=True, help="the base model's folder")
    parser.add_argument("--out", type=Path, required=True, help="where to write the adapter")
    arguments = parser.parse_args()
    try:
        base = served_base(
            arguments.base, max_rank=sys.maxsize
        )  # an engine says itself what is too much for it
        print(lora_import(arguments.source, arguments.out, base).name)
    except AdapterError as error:
        print(error.message, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
