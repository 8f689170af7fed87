"""The environment of the web and dispatcher processes, read once. Everything else asks `settings()`."""

from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, field_validator

from adapters_store.settings import Environment, read_settings


class Settings(Environment):
    """Every variable has the prefix ATTUNE_. Sizes are bytes."""

    #: The web's own role, which owns no table.
    database_url: str
    #: The role that owns the tables; needed by `manage.py migrate` alone.
    database_owner_url: str | None = None
    broker_url: str
    s3_endpoint_url: str | None = None
    s3_bucket: str
    s3_access_key: str
    s3_secret_key: SecretStr
    s3_region: str = "us-east-1"
    engine_url: str
    engine_key: SecretStr
    secret_key: Annotated[SecretStr, Field(min_length=32)]
    #: How browsers and trainers reach the web process; https makes cookies secure.
    public_url: str
    #: Further host names, comma-separated, by which the process is reached (a trainer's way inside a cluster).
    allowed_hosts: str = ""
    models_dir: Path
    trainer_token: Annotated[SecretStr, Field(min_length=16)]
    signup_open: bool = False
    #: Larger uploads are refused while they arrive. Validation happens within the request, so this bounds its time.
    max_upload_bytes: Annotated[int, Field(ge=1)] = 100_000_000
    #: What the engine serves, by the engine's own variables: the highest rank of an adapter, and the most tokens of a
    #: conversation with its answer. Nothing is trained that could not be served.
    max_rank: Annotated[int, Field(ge=1)] = 32
    max_model_len: Annotated[int, Field(ge=16)] = 2048
    log_level: str = "INFO"

    @field_validator("database_url", "database_owner_url")
    @classmethod
    def _postgres(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("postgres://", "postgresql://")):
            raise ValueError("must be a PostgreSQL URL, such as postgresql://web:password@host/attune")
        return value

    @field_validator("engine_url", "public_url")
    @classmethod
    def _http(cls, value: str) -> str:
        if not value.startswith(("http://", "https://")):
            raise ValueError("must be an http:// or https:// URL")
        return value.rstrip("/")


@lru_cache(maxsize=1)
def settings() -> Settings:
    return read_settings(Settings, of="the web application")
