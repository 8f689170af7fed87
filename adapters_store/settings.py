"""How every package reads its settings: from ATTUNE_ variables, once, or an exit that says what to do about each."""

from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

_PREFIX = "ATTUNE_"


class Environment(BaseSettings):
    """Fields are variables without the prefix; a variable that is empty is not set."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, env_ignore_empty=True, frozen=True)


S = TypeVar("S", bound=Environment)


def read_settings(kind: type[S], *, of: str) -> S:
    """The settings of `of` ("the trainer", say). Raises SystemExit with one sentence for each that is missing or wrong.

    Values are never printed: some are secrets.
    """
    try:
        return kind()
    except ValidationError as error:
        faults = error.errors(include_input=False, include_url=False)
        lines = [f"The settings of {of} are not right.", *(f"  - {_sentence(fault)}." for fault in faults)]
        raise SystemExit("\n".join(lines)) from None


def _sentence(fault: Any) -> str:
    problem = fault["msg"].removeprefix("Value error, ")
    if not fault["loc"]:  # a check of several variables names them itself
        return str(problem)
    name = f"{_PREFIX}{fault['loc'][0]}".upper()
    return f"Set {name}; it has no default" if fault["type"] == "missing" else f"{name}: {problem}"
