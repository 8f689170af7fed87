"""Everything that a trainer reads from the environment, once, with the prefix ATTUNE_."""

from functools import cache
from pathlib import Path

from pydantic import AnyHttpUrl, DirectoryPath, Field, SecretStr, field_validator

from adapters_store.settings import Environment, read_settings
from training_jobs.messages import MOST_TOGETHER


class Settings(Environment):
    """A trainer knows the broker, the web application and its own disk; no database and no storage credentials."""

    #: redis://:password@host:port/0, the same as the web application's. Secret: it holds a password.
    broker_url: SecretStr
    #: Where /internal/ is served, as this machine reaches it.
    web_url: AnyHttpUrl
    trainer_token: SecretStr
    #: One folder for each base model, named as in the catalogue.
    models_dir: DirectoryPath
    #: Scratch space of this trainer alone: downloads and checkpoints of the running job, removed after it.
    work_dir: Path
    #: The engine's limit: what is longer than it serves is not trained on.
    max_model_len: int = Field(default=2048, ge=16)
    #: Optimiser steps, and seconds, between checkpoints: both must have passed.
    checkpoint_steps: int = Field(default=10, ge=1)
    checkpoint_seconds: float = Field(default=10.0, ge=0)
    #: Asked to stop, a trainer gets so long to finish its step and leave a checkpoint; then it gives its job back as it
    #: is. What stops it has to be patient for some seconds more.
    leave_seconds: float = Field(default=25.0, ge=0)
    #: Small jobs of one base and recipe that are trained in one batch at most. Unset: 16 on a GPU, and 1 on a CPU,
    #: where all would wait for the last one and the whole is hardly faster (docs/benchmarks.md).
    together: int | None = Field(default=None, ge=1, le=MOST_TOGETHER)

    @field_validator("broker_url")
    @classmethod
    def _broker_is_redis(cls, url: SecretStr) -> SecretStr:
        if not url.get_secret_value().startswith(("redis://", "rediss://")):
            raise ValueError("give a redis:// or rediss:// URL (Valkey or Redis)")
        return url

    @field_validator("trainer_token")
    @classmethod
    def _token_is_long(cls, token: SecretStr) -> SecretStr:
        if len(token.get_secret_value()) < 16:
            raise ValueError("use at least 16 characters, for example the output of `openssl rand -hex 20`")
        return token

    @field_validator("work_dir")
    @classmethod
    def _work_dir_is_made(cls, folder: Path) -> Path:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(
                f"the folder cannot be made ({error.strerror}); name one that is writable"
            ) from None
        return folder

    @property
    def web(self) -> str:
        return str(self.web_url).rstrip("/")


@cache
def settings() -> Settings:
    return read_settings(Settings, of="the trainer")
