"""Random adapters, strong enough that every one of them changes what the model says."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adapters_store.manifest import Manifest
from adapters_store.names import Method
from adapters_store.weights import adapter_read
from benchmarks import random_adapters
from inference.adapter_checks import served_base


@dataclass(frozen=True)
class Adapter:
    """An adapter as tests make it: its manifest, its float32 arrays and the folder where it lies."""

    manifest: Manifest
    tensors: dict[str, np.ndarray]
    folder: Path

    @property
    def name(self) -> str:
        return self.manifest.name


def random_adapter(folder: Path, *, base: Path, method: Method, rank: int = 8, **options: Any) -> Adapter:
    """As benchmarks.random_adapters has it, for the model in the folder `base`."""
    served = served_base(base, max_rank=rank)
    random_adapters.random_adapter(folder, base=served, method=method, rank=rank, **options)
    manifest, tensors = adapter_read(folder)
    return Adapter(manifest, tensors, folder)
