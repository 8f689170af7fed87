"""Serving names. A name is made from the adapter's digest, so it never changes meaning."""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from adapters_store.errors import BadName

Position = Literal["prefill", "all"]
Method = Literal["lora", "direft", "loreft"]

POSITIONS: tuple[Position, ...] = get_args(Position)
METHODS: tuple[Method, ...] = get_args(Method)

_PREFIX: dict[Position, str] = {"prefill": "ap", "all": "aa"}
_NAME = re.compile(r"(?:(?P<tenant>[0-9a-f]{32})/)?(?P<prefix>a[pa])-(?P<digest>[0-9a-f]{64})")


@dataclass(frozen=True)
class ServingName:
    """A parsed name. `tenant` is None for the bare form that a local folder of adapters uses."""

    tenant: str | None
    digest: str
    position: Position

    @property
    def name(self) -> str:
        return serving_name(self.digest, self.position)

    def __str__(self) -> str:
        return self.name if self.tenant is None else qualified_name(self.tenant, self.name)


def serving_name(digest: str, position: Position) -> str:
    """`ap-` (prefill) or `aa-` (all) and the 64 hex digits of the adapter's digest."""
    return f"{_PREFIX[position]}-{digest}"


def qualified_name(tenant: str, name: str) -> str:
    """What the engine is asked for: two tenants never share an adapter, not even one with equal bytes."""
    return f"{tenant}/{name}"


def parse_name(text: str) -> ServingName:
    """The inverse of both; raises BadName for anything else."""
    match = _NAME.fullmatch(text)
    if match is None:
        raise BadName("An adapter's name is 'ap-' or 'aa-' followed by 64 hexadecimal digits.")
    position: Position = "prefill" if match["prefix"] == "ap" else "all"
    return ServingName(match["tenant"], match["digest"], position)
