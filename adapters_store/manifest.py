"""manifest.json: what an adapter is, in a form that cannot be read two ways."""

import hashlib
import json
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from adapters_store.errors import AdapterCorrupt
from adapters_store.names import Method, Position, serving_name

TENSORS_FILE: Final = "adapter_model.safetensors"
CONFIG_FILE: Final = "adapter_config.json"
MANIFEST_FILE = "manifest.json"

#: A 128-layer model with seven sites has 1,792 tensors, about 200 bytes each.
MAX_MANIFEST_BYTES = 2_000_000

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BaseRef(Part):
    """The base model an adapter belongs to: its digest (adapters_store.base) and a name for people."""

    digest: Sha256
    name: Annotated[str, Field(max_length=200)]


class Tensor(Part):
    """Row-major, little-endian; float32 is the only dtype that adapters are stored in."""

    shape: tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...]
    dtype: Literal["F32"] = "F32"


class FileRef(Part):
    sha256: Sha256
    size: Annotated[int, Field(ge=0, le=2_000_000_000)]


class Manifest(Part):
    """The whole of an adapter but its numbers. `files` has every file but the manifest itself."""

    schema_version: Literal[1] = 1
    base: BaseRef
    method: Method
    position: Position
    rank: Annotated[int, Field(ge=1, le=256)]
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    convention: Annotated[str, Field(max_length=200)]
    tensors: Annotated[dict[str, Tensor], Field(min_length=1, max_length=10_000)]
    files: dict[Literal["adapter_model.safetensors", "adapter_config.json"], FileRef]
    training: dict[str, Any] = {}

    @property
    def digest(self) -> str:
        """Identity: what the adapter computes and for which base, not how it came to be (design: PreFT, exactly)."""
        identity = {
            "base": self.base.digest,
            "method": self.method,
            "position": self.position,
            "rank": self.rank,
            "scale": self.scale,
            "convention": self.convention,
            "tensors": self.files[TENSORS_FILE].sha256,
        }
        return hashlib.sha256(canonical_json(identity)).hexdigest()

    @property
    def name(self) -> str:
        return serving_name(self.digest, self.position)


def canonical_json(value: Any) -> bytes:
    """UTF-8, sorted keys, no spaces, no NaN: equal values give equal bytes."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def manifest_dump(manifest: Manifest) -> bytes:
    return canonical_json(manifest.model_dump(mode="json"))


def manifest_load(data: bytes) -> Manifest:
    """Parse and check; raises AdapterCorrupt with the first thing that is wrong, never with the contents."""
    if len(data) > MAX_MANIFEST_BYTES:
        raise AdapterCorrupt(f"manifest.json is larger than {MAX_MANIFEST_BYTES} bytes.")
    try:
        manifest = Manifest.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the document"
        raise AdapterCorrupt(f"manifest.json is not valid at {where}: {first['msg']}.") from None
    if TENSORS_FILE not in manifest.files:
        raise AdapterCorrupt(f"manifest.json does not list {TENSORS_FILE}.")
    return manifest
