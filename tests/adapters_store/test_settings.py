"""A wrong environment is explained in one way by every part: each variable by its name, no value, what to do."""

import os
from typing import Self

import pytest
from pydantic import SecretStr, field_validator, model_validator

from adapters_store.settings import Environment, read_settings
from training_jobs.settings import Settings as Trainer
from webapp.config.settings import Settings as Web


class Settings(Environment):
    needed: str
    number: int = 1
    key: SecretStr = SecretStr("")

    @field_validator("key")
    @classmethod
    def _long(cls, key: SecretStr) -> SecretStr:
        if 0 < len(key.get_secret_value()) < 16:
            raise ValueError("use at least 16 characters")
        return key

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.number == 13:
            raise ValueError("ATTUNE_NUMBER is one that nobody wants")
        return self


@pytest.fixture(autouse=True)
def empty(monkeypatch):
    for name in [name for name in os.environ if name.startswith("ATTUNE_")]:
        monkeypatch.delenv(name)


def test_every_fault_has_a_sentence_and_no_value_is_shown(monkeypatch):
    monkeypatch.setenv("ATTUNE_NUMBER", "seven")
    monkeypatch.setenv("ATTUNE_KEY", "tiny-secret")
    with pytest.raises(SystemExit) as refusal:
        read_settings(Settings, of="the oracle")
    assert str(refusal.value).splitlines() == [
        "The settings of the oracle are not right.",
        "  - Set ATTUNE_NEEDED; it has no default.",
        "  - ATTUNE_NUMBER: Input should be a valid integer, unable to parse string as an integer.",
        "  - ATTUNE_KEY: use at least 16 characters.",
    ]


def test_a_check_of_several_speaks_for_itself(monkeypatch):
    monkeypatch.setenv("ATTUNE_NEEDED", "x")
    monkeypatch.setenv("ATTUNE_NUMBER", "13")
    with pytest.raises(SystemExit, match="  - ATTUNE_NUMBER is one that nobody wants"):
        read_settings(Settings, of="the oracle")


def test_an_empty_variable_is_not_set(monkeypatch):
    monkeypatch.setenv("ATTUNE_NEEDED", "x")
    monkeypatch.setenv("ATTUNE_NUMBER", "")
    assert read_settings(Settings, of="the oracle").number == 1


@pytest.mark.parametrize("kind", [Trainer, Web])
def test_parts_are_explained_in_these_words(monkeypatch, kind):
    monkeypatch.setenv("ATTUNE_TRAINER_TOKEN", "short-secret")
    monkeypatch.setenv("ATTUNE_BROKER_URL", "")
    with pytest.raises(SystemExit) as refusal:
        read_settings(kind, of="this part")
    text = str(refusal.value)
    assert "Set ATTUNE_BROKER_URL; it has no default." in text
    assert "ATTUNE_TRAINER_TOKEN: " in text
    assert "Value error" not in text
    assert "short-secret" not in text
