"""What callers send, read strictly: an unknown field is refused by name, and no value is ever repeated back."""

from collections.abc import Collection, Sequence
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from webapp.config.faults import BadRequest

M = TypeVar("M", bound=BaseModel)
#: Names of fields are the caller's, and may be as long as the body: what is shown of one, and of a path.
_MOST_NAME, _MOST_PATH = 60, 200


def read_json(model: type[M], raw: bytes, *, not_supported: Collection[str] = ()) -> M:
    """A body, checked; raises BadRequest naming the first thing that is wrong.

    `not_supported`: fields that callers know from elsewhere, and that are refused as such rather than as misspelt.
    """
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRequest(
            f"The body is not JSON: {error.msg} at line {error.lineno}.", code="bad_json"
        ) from None
    if not isinstance(document, dict):
        raise BadRequest("The body must be a JSON object.", code="bad_json")
    return read_object(model, document, not_supported=not_supported)


def read_object(model: type[M], document: dict[str, Any], *, not_supported: Collection[str] = ()) -> M:
    """Fields that are already apart, checked likewise."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise _fault(error.errors(include_url=False), document, not_supported) from None


def _fault(
    errors: Sequence[ErrorDetails], document: dict[str, Any], not_supported: Collection[str]
) -> BadRequest:
    """The first fault, by its dotted path as the caller wrote it: OpenAI's errors have room for one."""
    alike = _of_one_union(errors, document)
    first = alike[0]
    tags = _tags(first, document)
    written = (_short(part) for index, part in enumerate(first["loc"]) if index not in tags)
    path = _short(".".join(written), _MOST_PATH)
    kind = first["type"]
    if kind == "extra_forbidden":
        why = (
            f"'{path}' is not supported here: leave it out."
            if path in not_supported
            else f"Unknown field '{path}'. Check its spelling, or leave it out."
        )
        return BadRequest(why, code="unknown_parameter", param=path)
    if kind == "missing":
        return BadRequest(f"'{path}' is missing.", code="missing_required_parameter", param=path)
    # Fields that clients may only send empty, because they send back what they were sent.
    if kind == "none_required" or (kind == "too_long" and first["ctx"]["max_length"] == 0):
        message = "not supported here: leave it out"
    else:
        beginning = "Input should be "
        others = [f" or {_sentence(each).removeprefix(beginning)}" for each in alike[1:]]
        message = _sentence(first) + "".join(others)
    return BadRequest(f"{path or 'body'}: {message}.", code="invalid_value", param=path or None)


def _of_one_union(errors: Sequence[ErrorDetails], document: dict[str, Any]) -> Sequence[ErrorDetails]:
    """The first error; if each member of a union refused the value, those of the member that was meant, else of all.

    A member that is of the value's type was meant: it has something to say beyond "should be a …".
    """
    first = errors[0]
    tag = next(iter(_tags(first, document)), None)
    if tag is None or first["loc"][tag] == "[key]":
        return [first]
    members = [each for each in errors if each["loc"][:tag] == first["loc"][:tag] and len(each["loc"]) > tag]
    for each in members:
        is_other_type = each["type"].endswith("_type") or each["type"] == "literal_error"
        if len(each["loc"]) > tag + 1 or not is_other_type:
            return [each]
    return members


def _tags(error: ErrorDetails, document: Any) -> list[int]:
    """Where in the error's place stands what the caller never wrote: the name of a union's member, or "[key]"."""
    tags, value, loc = [], document, error["loc"]
    for index, part in enumerate(loc):
        if part in value if isinstance(value, dict) else isinstance(part, int):
            value = value[part]
        elif error["type"] != "missing" or index < len(loc) - 1:
            tags.append(index)
    return tags


def _sentence(error: ErrorDetails) -> str:
    """What is accepted, in words about JSON."""
    kind, about = error["type"], error.get("ctx", {})
    if kind in ("too_long", "too_short") and isinstance(error["input"], str):
        subject = "the name" if error["loc"][-1] == "[key]" else "Input"
        end, limit = ("most", about["max_length"]) if kind == "too_long" else ("least", about["min_length"])
        return f"{subject} should have at {end} {limit} character{'' if limit == 1 else 's'}"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return "Input should be an object"
    message = error["msg"].removeprefix("Value error, ").removesuffix(".")
    return message.replace(" after validation", "")


def _short(name: str | int, most: int = _MOST_NAME) -> str:
    text = str(name)
    return text if len(text) <= most else f"{text[: most - 1]}…"
