"""JSON, strictly: what Python's parser forgives (NaN, a key twice) or chokes on (depth, digits) is a row error."""

import json
import math
from typing import Any, NoReturn

from webapp.datasets.faults import RowError, shown

MAX_DEPTH = 64
_MAX_DIGITS = 18


def parse_row(line: bytes) -> dict[str, Any]:
    """The object in these bytes; raises RowError for what is not strictly JSON, or hostile in size or depth."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RowError(
            "line", f"not UTF-8 at byte {error.start + 1}", "Save the file as UTF-8 and upload it again."
        ) from None
    try:
        row = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_constant,
            parse_int=_integer,
            parse_float=_number,
        )
    except json.JSONDecodeError as error:
        raise RowError(
            "line", f"not JSON: {error.msg} at character {error.pos + 1}", _advice(text, error)
        ) from None
    except RecursionError:
        raise _too_deep() from None
    if not isinstance(row, dict):
        raise RowError("line", "not a JSON object", "Write each row as one object, in braces.")
    _check_depth(row)
    return row


def _advice(text: str, error: json.JSONDecodeError) -> str:
    if text.lstrip().startswith("{'"):
        return "Use double quotes, as json.dumps writes them."
    if error.pos >= len(text.rstrip()):
        return "The object ends early: put the whole of it on one line."
    return 'Look for an unescaped quote (write \\") or a missing comma just before this character.'


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise RowError(shown(twice), "the same key twice", "Keep one of the two.")
    return row


def _constant(name: str) -> NoReturn:
    raise RowError("line", f"{name} is not JSON", "Use a finite number or null.")


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise RowError("line", f"a number with {len(digits):,} digits", "Write it as a string.")
    return int(digits)


def _number(text: str) -> float:
    value = float(text) if len(text) < 400 else math.inf
    if not math.isfinite(value):
        raise RowError("line", "a number that is too large", "Write it as a string.")
    return value


def _too_deep() -> RowError:
    return RowError(
        "line", f"nested deeper than {MAX_DEPTH} levels", "Conversations need four: flatten the rest."
    )


def _check_depth(row: dict[str, Any]) -> None:
    level: list[Any] = [row]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for value in level
            for inner in (value.values() if isinstance(value, dict) else value)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise _too_deep()
