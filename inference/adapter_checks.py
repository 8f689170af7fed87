"""May this engine serve this adapter? Asked of the manifest alone, before any weights are fetched."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapters_store.base import base_digest
from adapters_store.errors import AdapterCorrupt, AdapterUnsupported, WrongBase
from adapters_store.manifest import Manifest
from adapters_store.weights import check_shapes

_LAYER = re.compile(r"base_model\.model\.(?:model\.)?layers\.(\d+)\.(.+)")


class RankTooHigh(AdapterUnsupported):
    """The engine's buffers are made for a smaller rank."""

    code = "adapter_rank_too_high"


@dataclass(frozen=True)
class ServedBase:
    """The base model that this engine serves, as far as adapters must fit it."""

    name: str
    digest: str
    max_rank: int
    layers: int
    hidden: int
    #: Input and output width of each projection that LoRA may adapt.
    widths: dict[str, tuple[int, int]]


def model_folder(model: str) -> Path:
    """The local folder of what vLLM was told to serve: a path, or a hub id that was downloaded before."""
    folder = Path(model)
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, local_files_only=True))
    except Exception:
        raise AdapterUnsupported(
            f"Adapters are bound to their base's bytes, and {model} is not on this machine: serve a local folder."
        ) from None


def served_base(folder: Path, *, max_rank: int) -> ServedBase:
    """Read a model folder's identity and widths; reading the weights takes a while the first time."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head = config.get("head_dim") or hidden // config["num_attention_heads"]
    queries = head * config["num_attention_heads"]
    keys = head * (config.get("num_key_value_heads") or config["num_attention_heads"])
    return ServedBase(
        name=folder.name,
        digest=base_digest(folder),
        max_rank=max_rank,
        layers=config["num_hidden_layers"],
        hidden=hidden,
        widths={
            "self_attn.q_proj": (hidden, queries),
            "self_attn.k_proj": (hidden, keys),
            "self_attn.v_proj": (hidden, keys),
            "self_attn.o_proj": (queries, hidden),
            "mlp.gate_proj": (hidden, inner),
            "mlp.up_proj": (hidden, inner),
            "mlp.down_proj": (inner, hidden),
        },
    )


def check_servable(manifest: Manifest, base: ServedBase) -> None:
    """Raise WrongBase, RankTooHigh or AdapterCorrupt, each naming both values, unless the adapter fits."""
    if manifest.base.digest != base.digest:
        raise WrongBase(
            f"The adapter was trained for the base model {manifest.base.name} ({manifest.base.digest[:12]}…); "
            f"this engine serves {base.name} ({base.digest[:12]}…)."
        )
    if manifest.rank > base.max_rank:
        raise RankTooHigh(
            f"The adapter has rank {manifest.rank}; this engine serves ranks up to {base.max_rank}."
        )
    check_shapes(manifest)
    for name, tensor in manifest.tensors.items():
        if not _fits(name, tensor.shape, base):
            raise AdapterCorrupt(
                f"adapter_model.safetensors: {name[:120]} with shape {list(tensor.shape)} "
                f"does not fit {base.name}."
            )


def _fits(name: str, shape: tuple[int, ...], base: ServedBase) -> bool:
    """Whether the axis that is not the rank has the base's width (check_shapes has seen to the ranks)."""
    match = _LAYER.fullmatch(name)
    if match is None or int(match[1]) >= base.layers:
        return False
    part = match[2]
    if part.endswith(".bias"):
        return True
    site, is_lora, which = part.partition(".lora_")
    if not is_lora:
        return shape[0 if part == "direft_B.weight" else 1] == base.hidden
    if site not in base.widths:
        return False
    width_in, width_out = base.widths[site]
    return shape[1] == width_in if which == "A.weight" else shape[0] == width_out
