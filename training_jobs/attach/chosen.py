"""Which adapter a batch goes through: the active one, or for each row one of several that are trained together.

An adapted layer asks the choice for its weights and computes the same formula with what it gets: [r, d] for the one
adapter of all rows, [B, r, d] for an adapter of each row's own, and then it is one batched product.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

#: The keyword that carries RowAdapters through a forward, beside the prompt mask and for the same reason
#: (training_jobs.attach.routing).
ROWS = "row_adapters"


@dataclass(frozen=True)
class OneAdapter:
    """All rows go through the adapter of this name."""

    name: str

    def weights(self, modules: nn.ModuleDict) -> torch.Tensor:
        """Of linear layers by adapter: the weight, [out, in]."""
        return modules[self.name].weight

    def biases(self, modules: nn.ModuleDict) -> torch.Tensor:
        """[out]."""
        return modules[self.name].bias

    def of_rows(self, tensor: torch.Tensor) -> torch.Tensor:
        """What `weights` and `biases` say, for each row: the same for all of them."""
        return tensor


@dataclass(frozen=True)
class RowAdapters:
    """`names`: the adapters that the batch goes through; `index` [B] int64: each row's, as its place in `names`."""

    names: tuple[str, ...]
    index: torch.Tensor

    @classmethod
    def of(cls, names: Sequence[str], device: torch.device) -> "RowAdapters":
        """From the name of each row's adapter. Adapters of no row are left out: they get no gradient."""
        places = {name: place for place, name in enumerate(dict.fromkeys(names))}
        return cls(tuple(places), torch.tensor([places[name] for name in names], device=device))

    def weights(self, modules: nn.ModuleDict) -> torch.Tensor:
        """[adapters, out, in]."""
        return torch.stack([modules[name].weight for name in self.names])

    def biases(self, modules: nn.ModuleDict) -> torch.Tensor:
        """[adapters, 1, out]: broadcasts over a row's tokens."""
        return torch.stack([modules[name].bias for name in self.names]).unsqueeze(1)

    def of_rows(self, tensor: torch.Tensor) -> torch.Tensor:
        """[adapters, ...] as [B, ...]."""
        return tensor.index_select(0, self.index)


Choice = OneAdapter | RowAdapters
