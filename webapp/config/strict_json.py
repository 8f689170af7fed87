"""What callers send, read strictly: an unknown field is refused by name, and no value is ever repeated back."""

from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from webapp.config.faults import BadRequest

M = TypeVar("M", bound=BaseModel)
#: What pydantic calls the members of our unions.
_TYPES = {"int", "float", "str", "constrained-int", "constrained-float", "constrained-str"}


def read_json(model: type[M], raw: bytes) -> M:
    """A body, checked; raises BadRequest naming the first thing that is wrong."""
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRequest(
            f"The body is not JSON: {error.msg} at line {error.lineno}.", code="bad_json"
        ) from None
    if not isinstance(document, dict):
        raise BadRequest("The body must be a JSON object.", code="bad_json")
    return read_object(model, document)


def read_object(model: type[M], document: dict[str, Any]) -> M:
    """Fields that are already apart, checked likewise."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise _fault(error) from None


def _fault(error: ValidationError) -> BadRequest:
    """The first fault, by its dotted path as the caller wrote it: OpenAI's errors have room for one."""
    first = error.errors(include_input=False, include_url=False)[0]
    path = ".".join(str(part) for part in first["loc"] if not _is_type(part)) or None
    if first["type"] == "extra_forbidden":
        return BadRequest(
            f"Unknown field '{path}'. Check its spelling, or leave it out.",
            code="unknown_parameter",
            param=path,
        )
    if first["type"] == "missing":
        return BadRequest(f"'{path}' is missing.", code="missing_required_parameter", param=path)
    message = str(first["msg"]).removeprefix("Value error, ").removesuffix(".")
    return BadRequest(f"{path or 'body'}: {message}.", code="invalid_value", param=path)


def _is_type(part: str | int) -> bool:
    """A union adds the name of the type that was tried last, which the caller never wrote."""
    return isinstance(part, str) and (
        part in _TYPES or ("[" in part and not part.startswith("expires_after["))
    )
