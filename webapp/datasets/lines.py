"""The lines of an upload, numbered, in memory that does not depend on the file."""

from collections import Counter
from collections.abc import Iterator
from typing import IO

from webapp.datasets.faults import FileError, RowError
from webapp.datasets.mojibake import repair

MAX_LINE_BYTES = 1_000_000
MAX_ROWS = 200_000
#: A hundred megabytes of text have no more; of line ends, they would take minutes.
MAX_LINES = 3_000_000
_CHUNK = 1 << 16


def lines(file: IO[bytes]) -> Iterator[tuple[int, bytes | RowError]]:
    """Numbered lines that are not blank, from the file's position; a line that is too long is its error."""
    return ((number, line) for number, line in _all_lines(file) if isinstance(line, RowError) or line.strip())


def text_lines(file: IO[bytes], notes: Counter[str]) -> Iterator[tuple[int, str | RowError]]:
    """Numbered lines of plain text without their ends, blank ones too: they stand between paragraphs. `notes`: of lines
    that were repaired."""
    for number, line in _all_lines(file):
        if isinstance(line, RowError):
            yield number, line
            continue
        try:
            yield number, repair(line.decode("utf-8").rstrip("\r\n"), notes)
        except UnicodeDecodeError as error:
            yield (
                number,
                RowError(
                    "line",
                    f"not UTF-8 at byte {error.start + 1}",
                    "Save the file as UTF-8 and upload it again.",
                ),
            )


def _all_lines(file: IO[bytes]) -> Iterator[tuple[int, bytes | RowError]]:
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if number > MAX_LINES:
            raise FileError(f"More than {MAX_LINES:,} lines. Upload the file in parts.", code="too_many_rows")
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
        else:
            yield number, line
