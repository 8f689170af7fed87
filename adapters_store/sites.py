"""Where an adapter acts, read from its tensors' names and shapes: nowhere else are they taken apart."""

import re
from dataclasses import dataclass, field

from adapters_store.errors import AdapterCorrupt
from adapters_store.manifest import Manifest
from adapters_store.names import Method

_LAYER = r"(?P<at>base_model\.model\.(?:model\.)?layers\.(?P<layer>\d{1,4}))\."
_NAMES: dict[Method, re.Pattern[str]] = {
    "lora": re.compile(_LAYER + r"(?P<module>[a-z_]+(?:\.[a-z_]+){0,2})\.lora_(?P<part>A|B)\.weight"),
    "direft": re.compile(_LAYER + r"(?P<module>)direft_(?P<part>A\.weight|A\.bias|B\.weight)"),
    "loreft": re.compile(_LAYER + r"(?P<module>)loreft_(?P<part>R\.weight|W\.weight|W\.bias)"),
}
#: The parts of a site, and which axis of each has the rank; a matrix's other one is a width of the base model.
_RANK_AXIS: dict[Method, dict[str, int]] = {
    "lora": {"A": 0, "B": 1},
    "direft": {"A.weight": 0, "A.bias": 0, "B.weight": 1},
    "loreft": {"R.weight": 0, "W.weight": 0, "W.bias": 0},
}


@dataclass(frozen=True)
class Site:
    """One linear map, or the residual stream after a layer where `module` is empty.

    `at` is the layer's name as tensors begin with it. By part: the whole tensor's name, its rank, and for matrices the
    width of the base model that it must fit.
    """

    at: str
    layer: int
    module: str
    names: dict[str, str] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    widths: dict[str, int] = field(default_factory=dict)

    @property
    def target_module(self) -> str:
        """The module's own name, as PEFT takes it; empty for the residual stream."""
        return self.module.rpartition(".")[2]

    def __str__(self) -> str:
        return f"{self.at}.{self.module}".rstrip(".")


def sites_of(manifest: Manifest) -> list[Site]:
    """Every site has all its parts, named for its method, with ranks that agree and do not exceed the manifest's.

    Raises AdapterCorrupt. Widths are checked against the base model by whoever has one.
    """
    sites: dict[tuple[str, str], Site] = {}
    axes = _RANK_AXIS[manifest.method]
    for name, tensor in manifest.tensors.items():
        match = _NAMES[manifest.method].fullmatch(name)
        if match is None:
            raise AdapterCorrupt(f"A {manifest.method} adapter cannot hold a tensor named {name[:120]!r}.")
        part, shape = match["part"], tensor.shape
        if len(shape) != (1 if part.endswith("bias") else 2):
            raise AdapterCorrupt(f"Tensor {name} has {len(shape)} dimensions.")
        key = match["at"], match["module"]
        site = sites.setdefault(key, Site(match["at"], int(match["layer"]), match["module"]))
        site.names[part] = name
        site.ranks[part] = shape[axes[part]]
        if len(shape) == 2:
            site.widths[part] = shape[1 - axes[part]]
    for site in sites.values():
        if site.names.keys() != axes.keys():
            raise AdapterCorrupt(f"{site} lacks one of its parts {sorted(axes)}.")
        ranks = set(site.ranks.values())
        if len(ranks) != 1 or max(ranks) > manifest.rank:
            raise AdapterCorrupt(f"{site} has ranks {sorted(ranks)}, not {manifest.rank}.")
    return list(sites.values())
