"""May this engine serve this adapter? Asked of the manifest alone, before any weights are fetched."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapters_store.base import base_digest
from adapters_store.errors import AdapterCorrupt, AdapterUnsupported, WrongBase
from adapters_store.manifest import Manifest
from adapters_store.sites import Site, sites_of

#: What a config.json has to say for an adapter's widths to be known.
_SIZES = ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers")


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
    """Read a model folder's identity and widths; reading the weights takes a while the first time.

    Raises AdapterUnsupported for a model that does not say them as Llama does.
    """
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    if missing := [field for field in _SIZES if field not in config]:
        raise AdapterUnsupported(
            f"The config.json of {folder.name} has no {', '.join(missing)}: no adapter is served on this architecture."
        )
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
    for site in sites_of(manifest):
        if not _fits(site, base):
            shapes = ", ".join(str(list(manifest.tensors[name].shape)) for name in site.names.values())
            raise AdapterCorrupt(f"adapter_model.safetensors: {site} with {shapes} does not fit {base.name}.")


def _fits(site: Site, base: ServedBase) -> bool:
    """Whether the base has this layer and module, and they are as wide as the site (sites_of has seen to the ranks)."""
    if site.layer >= base.layers:
        return False
    if site.module:
        return base.widths.get(site.module) == (site.widths["A"], site.widths["B"])
    return set(site.widths.values()) == {base.hidden}
