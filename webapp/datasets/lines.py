"""The lines of an upload and their JSON, strictly, in memory that does not depend on the file."""

import json
import math
from collections.abc import Iterator
from typing import IO, Any, NoReturn

from webapp.datasets.conversation import RowError

MAX_LINE_BYTES = 1_000_000
MAX_ROWS = 200_000
MAX_DEPTH = 64
_MAX_DIGITS = 18
_CHUNK = 1 << 16

#: First bytes of what people upload by mistake, and what to tell them.
_MAGIC = {
    b"\xff\xfe": "This file is UTF-16. Save it as UTF-8 and upload it again.",
    b"\xfe\xff": "This file is UTF-16. Save it as UTF-8 and upload it again.",
    b"PK\x03\x04": "This is a ZIP archive (or an Office document). Upload the text file inside it.",
    b"\x1f\x8b": "This is a gzip archive. Unpack it and upload the text file.",
    b"%PDF": "This is a PDF. Upload the conversations as JSON Lines.",
    b"PAR1": "This is a Parquet file. Export it as JSON Lines.",
}


class FileError(Exception):
    """Nothing of the file can be read; the text says what it is and what to do."""


def check_kind(file: IO[bytes]) -> None:
    """Look at the first bytes; raises FileError for what is not text in UTF-8. Skips a byte order mark."""
    head = file.read(512)
    file.seek(0)
    for magic, advice in _MAGIC.items():
        if head.startswith(magic):
            raise FileError(advice)
    if not head.strip():
        raise FileError("This file is empty.")
    if b"\x00" in head:
        wide = head[1:64:2].count(0) > 16 or head[0:64:2].count(0) > 16
        raise FileError(
            "This file is UTF-16 or UTF-32. Save it as UTF-8 and upload it again."
            if wide
            else "This is a binary file. Upload conversations as JSON Lines."
        )
    if head.startswith(b"\xef\xbb\xbf"):
        file.seek(3)
        head = head[3:]
    if head.lstrip()[:1] == b"[":
        raise FileError("This is one JSON array. Put each of its objects on a line of its own (JSON Lines).")


def lines(file: IO[bytes]) -> Iterator[tuple[int, bytes | RowError]]:
    """Numbered lines that are not blank, from the file's position; a line that is too long is its error."""
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = file.readline(_CHUNK)
            yield (
                number,
                RowError(
                    "line",
                    f"longer than {MAX_LINE_BYTES:,} bytes",
                    "Split the conversation into several rows.",
                ),
            )
        elif line.strip():
            yield number, line


def parse_row(line: bytes) -> dict[str, Any]:
    """The object on a line; raises RowError for anything that is not strictly JSON or hostile in size or depth."""
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
        raise RowError("line", "not a JSON object", "Put one object, in braces, on each line.")
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
        raise RowError(twice[:60], "the same key twice", "Keep one of the two.")
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
