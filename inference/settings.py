"""Everything that inference reads from the environment, once, with the prefix ATTUNE_.

`AdapterSettings` is what the plugin needs inside anyone's vLLM: for adapters in a folder nothing but that folder.
`EngineSettings` adds what `python -m inference.serve` needs.
"""

from functools import cache
from pathlib import Path
from typing import Self

from pydantic import DirectoryPath, Field, SecretStr, field_validator, model_validator

from adapters_store.settings import Environment, read_settings

_RANKS = (1, 8, 16, 32, 64, 128, 256)
_S3 = ("s3_endpoint_url", "s3_bucket", "s3_access_key", "s3_secret_key")


class AdapterSettings(Environment):
    """Where adapters come from, and how many bytes of them this machine may keep."""

    #: A folder of adapter folders, each named by its serving name or as one likes; for use without S3.
    adapter_dir: DirectoryPath | None = None
    s3_endpoint_url: str | None = None
    s3_bucket: str | None = None
    s3_access_key: str | None = None
    s3_secret_key: SecretStr | None = None
    s3_region: str = "us-east-1"
    adapter_cache_dir: Path = Path("~/.cache/attune/adapters")
    adapter_cache_bytes: int = Field(default=10_000_000_000, ge=1_000_000)
    #: Bytes of adapters in a worker's memory, beside the bound on their number (cpu_slots).
    adapter_memory_bytes: int = Field(default=8_000_000_000, ge=1_000_000)
    #: Seconds a request waits for room in CPU memory before it is told to come back.
    adapter_wait_seconds: float = Field(default=10.0, ge=0)

    @model_validator(mode="after")
    def _s3_is_whole(self) -> Self:
        given = [name for name in _S3 if getattr(self, name) is not None]
        missing = [f"ATTUNE_{name.upper()}" for name in _S3 if name not in given]
        if given and missing:
            raise ValueError(f"storage is half configured: set {', '.join(missing)} too, or unset the rest")
        return self

    @property
    def staged_bytes(self) -> int:
        """The part of the memory for what was read ahead of its request."""
        return self.adapter_memory_bytes // 4

    @property
    def resident_bytes(self) -> int:
        return self.adapter_memory_bytes - self.staged_bytes

    @property
    def own_adapters_dir(self) -> Path:
        """Where a serving engine keeps adapters of its own (the canary)."""
        return self.adapter_cache_dir.expanduser() / "own"

    @property
    def uses_s3(self) -> bool:
        return self.s3_bucket is not None


class EngineSettings(AdapterSettings):
    """The served engine: one base model, one key, loopback unless told otherwise."""

    models_dir: DirectoryPath
    #: The base model's folder inside models_dir, and the name that clients ask for.
    base_model: str = Field(min_length=1, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    engine_host: str = "127.0.0.1"
    engine_port: int = Field(default=8100, ge=1, le=65535)
    engine_key: SecretStr
    #: Distinct adapters in one step's prompts (vLLM: max_loras); unset, engine_args chooses.
    gpu_slots: int | None = Field(default=None, ge=1)
    #: Distinct adapters in memory, which bounds those of all requests in flight (vLLM: max_cpu_loras).
    cpu_slots: int = Field(default=64, ge=1)
    max_rank: int = 32
    max_model_len: int = Field(default=2048, ge=16)
    max_num_seqs: int = Field(default=32, ge=1)
    kv_cache_gb: int = Field(default=2, ge=1)

    @field_validator("engine_key")
    @classmethod
    def _key_is_long(cls, key: SecretStr) -> SecretStr:
        if len(key.get_secret_value()) < 16:
            raise ValueError("use at least 16 characters, for example the output of `openssl rand -hex 20`")
        return key

    @field_validator("max_rank")
    @classmethod
    def _rank_is_a_buffer_size(cls, rank: int) -> int:
        if rank not in _RANKS:
            raise ValueError(f"vLLM's buffers come in the ranks {', '.join(map(str, _RANKS))}; choose one")
        return rank

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not (self.base_folder / "config.json").is_file():
            raise ValueError(f"no model in {self.base_folder}: set ATTUNE_MODELS_DIR and ATTUNE_BASE_MODEL")
        if self.gpu_slots is not None and self.cpu_slots < self.gpu_slots:
            raise ValueError("ATTUNE_CPU_SLOTS must be at least ATTUNE_GPU_SLOTS")
        return self

    @property
    def base_folder(self) -> Path:
        return self.models_dir / self.base_model


@cache
def adapter_settings() -> AdapterSettings:
    return read_settings(AdapterSettings, of="the adapter plugin")


@cache
def engine_settings() -> EngineSettings:
    return read_settings(EngineSettings, of="the engine")
