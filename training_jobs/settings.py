"""Everything that a trainer reads from the environment, once, with the prefix ATTUNE_."""

from functools import cache
from pathlib import Path

from pydantic import AnyHttpUrl, DirectoryPath, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """A trainer knows the broker, the web application and its own disk; no database and no storage credentials."""

    model_config = SettingsConfigDict(env_prefix="ATTUNE_", env_ignore_empty=True, frozen=True)

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
    """The settings, or an exit with one sentence for each that is wrong; values are never printed."""
    try:
        return Settings()
    except ValidationError as error:
        lines = [_sentence(fault["loc"], fault["msg"]) for fault in error.errors(include_input=False)]
        raise SystemExit("The trainer's settings are not right.\n" + "\n".join(lines)) from None


def _sentence(where: tuple[int | str, ...], problem: str) -> str:
    name = f"ATTUNE_{str(where[0]).upper()}" if where else "The environment"
    if problem == "Field required":
        return f"  - Set {name}; it has no default."
    return f"  - {name}: {problem.removeprefix('Value error, ')}."
