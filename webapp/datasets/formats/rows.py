"""Files of rows, one JSON object each: a line each, or the elements of one array. Told apart by the rows' keys."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any, Protocol

from webapp.datasets.conversation import Conversation
from webapp.datasets.documents import Found, objects
from webapp.datasets.faults import Bad, FileError, RowError, shown
from webapp.datasets.findings import Findings
from webapp.datasets.formats import alpaca, openai_chat, preferences, prompt_completion, sharegpt
from webapp.datasets.head import Head
from webapp.datasets.lines import MAX_LINE_BYTES, lines
from webapp.datasets.scan import ANY
from webapp.datasets.strict_json import parse_row
from webapp.datasets.upload import Asked, Member, Upload


class RowFormat(Protocol):
    NAME: str
    KEYS: str

    def fits(self, row: dict[str, Any]) -> bool:
        """Whether the row's keys are this format's."""

    def parse(self, row: dict[str, Any]) -> Conversation:
        """The row's conversation; raises RowError."""


ROW_FORMATS: tuple[RowFormat, ...] = (openai_chat, prompt_completion, alpaca, sharegpt, preferences)


#: Of a file that nobody knows, to name its keys.
_LOOKED_AT = 1_000


class Rows:
    """A file of rows of one format; a row of another is an error that names it."""

    def __init__(self, form: RowFormat) -> None:
        self.NAME = form.NAME
        self._form = form

    def fits(self, head: Head) -> bool:
        """Whether most of the first rows have this format."""
        return _most_common(head.rows) is self._form

    def conversations(self, upload: Upload, asked: Asked, findings: Findings) -> Iterator[Conversation | Bad]:
        for member in upload.members:
            for line, row in _rows(member):
                try:
                    if isinstance(row, RowError):
                        raise row
                    yield self._conversation(member, line, row)
                except RowError as error:
                    yield Bad(line, error, member.entry)

    def _conversation(self, member: Member, line: int, row: dict[str, Any]) -> Conversation:
        if not self._form.fits(row):
            other = _most_common([row])
            raise RowError(
                "line",
                f"a row of the format {other.NAME} in a file of {self.NAME}"
                if other
                else f"not a row of {self.NAME}",
                f"Write it like the others: {self._form.KEYS}.",
            )
        talk = self._form.parse(row)
        talk.source, talk.line = f"{member.prefix}{line}", line
        return talk


class Unknown:
    """Text in no known format. What is not JSON is said line by line, as it may be one quote too many."""

    NAME = ""

    def fits(self, head: Head) -> bool:
        return True

    def conversations(self, upload: Upload, asked: Asked, findings: Findings) -> Iterator[Conversation | Bad]:
        [member, *_] = upload.members
        found = [row for _, row in islice(_rows(member), _LOOKED_AT) if isinstance(row, dict)]
        if found:
            keys = sorted({key for row in found for key in row})
            named = ", ".join(map(shown, keys[:10])) or "(none)"
            raise FileError(
                f"This file's format is not known: its rows have the keys {named}. Expected in each row: {_expected()}."
            )
        for line, row in _rows(member):
            if isinstance(row, RowError):
                yield Bad(line, row, member.entry)
        raise FileError(f"No line of this file is a JSON object. Expected on each line: {_expected()}.")


def _rows(member: Member) -> Iterator[tuple[int, dict[str, Any] | RowError]]:
    if Head(member, ()).is_array:
        for found in objects(member, [(ANY,)], MAX_LINE_BYTES):
            yield (found.line, found.row) if isinstance(found, Found) else (found.line, found.error)
        return
    for number, line in lines(member.open()):
        try:
            if isinstance(line, RowError):
                raise line
            yield number, parse_row(line)
        except RowError as error:
            yield number, error


def _most_common(rows: list[dict[str, Any]]) -> RowFormat | None:
    counted = Counter({form: sum(form.fits(row) for row in rows) for form in ROW_FORMATS})
    [(form, count)] = counted.most_common(1)
    return form if count else None


def _expected() -> str:
    return " or ".join(known.KEYS for known in ROW_FORMATS)
