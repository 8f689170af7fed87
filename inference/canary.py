"""An adapter of the engine's own, of no use but to be noticed: if asking for it changes nothing, the plugin is dead.

vLLM logs and swallows a plugin's import errors, so a server can look healthy and answer everyone with the base model.
"""

from pathlib import Path

import numpy as np

from adapters_store.manifest import BaseRef
from adapters_store.preft.config import scale_of
from adapters_store.weights import adapter_write
from inference.adapter_checks import served_base
from inference.settings import EngineSettings

#: The folder's name, and what to ask the engine for.
CANARY = "canary"


def install(settings: EngineSettings) -> None:
    """Write the canary for the served base where the resolver looks for the engine's own adapters."""
    canary_write(settings.own_adapters_dir / CANARY, base_folder=settings.base_folder)


def canary_write(folder: Path, *, base_folder: Path) -> None:
    """A DiReFT_P adapter of rank 1 that pushes the prompt's residual stream in a fixed random direction."""
    base = served_base(base_folder, max_rank=1)
    rng = np.random.default_rng(0)
    tensors: dict[str, np.ndarray] = {}
    for layer in range(base.layers):
        site = f"base_model.model.model.layers.{layer}.direft_"
        tensors[f"{site}A.weight"] = np.zeros((1, base.hidden), np.float32)
        tensors[f"{site}A.bias"] = np.ones(1, np.float32)
        tensors[f"{site}B.weight"] = rng.normal(size=(base.hidden, 1)).astype(np.float32)
    adapter_write(
        folder,
        tensors=tensors,
        config={"peft_type": "DIREFT"},
        base=BaseRef(digest=base.digest, name=base.name),
        method="direft",
        position="prefill",
        rank=1,
        scale=scale_of("direft", 1),
        training={},
    )
