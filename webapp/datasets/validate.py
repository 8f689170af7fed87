"""An upload, row by row, into conversations and a report. Memory is bounded whatever the file holds."""

import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from webapp.datasets.conversation import RowError
from webapp.datasets.formats import FORMATS, Format, sniff
from webapp.datasets.lines import MAX_ROWS, FileError, check_kind, lines, parse_row

#: In memory up to here, then a temporary file.
_SPOOL_BYTES = 4_000_000
#: Bad rows that the report itself lists; all of them are in the report's object.
LISTED_PROBLEMS = 1_000
_SNIFFED_ROWS = 20


class HashedFile:
    """A temporary file that knows its own sha256 and size."""

    def __init__(self) -> None:
        self.file = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115 (its owner closes it)
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> None:
        self.file.write(data)
        self._hash.update(data)
        self.size += len(data)

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def close(self) -> None:
        self.file.close()


@dataclass
class Report:
    """What became of the rows. `error` is set when nothing of the file can be trained on."""

    rows: int = 0
    good: int = 0
    bad: int = 0
    examples: int = 0
    error: str | None = None
    format: str = ""
    problems: list[dict[str, Any]] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        """How the report is stored and shown."""
        return {
            "rows": self.rows,
            "good": self.good,
            "bad": self.bad,
            "examples": self.examples,
            "error": self.error,
            "problems": self.problems,
            "notes": [f"{count} × {sentence}" for sentence, count in self.notes.most_common(50)]
            + self._advice(),
        }

    def _advice(self) -> list[str]:
        if 0 < self.examples < 10:
            return [
                f"Only {self.examples} examples: expect a change of style, and hardly any facts. 50 do better."
            ]
        return []


@dataclass
class Validated:
    """`conversations` is what trainers read; `problems` lists every bad row, one JSON object a line."""

    report: Report
    conversations: HashedFile
    problems: HashedFile

    def close(self) -> None:
        self.conversations.close()
        self.problems.close()


def validate(file: IO[bytes]) -> Validated:
    """Read the whole of a seekable file. Never raises for what is in it."""
    result = Validated(Report(), HashedFile(), HashedFile())
    report = result.report
    try:
        check_kind(file)
        start = file.tell()
        form = _sniff(file)
        report.format = form.NAME if form else ""
        file.seek(start)
        for line, row in _rows(file):
            _take(result, form, line, row)
        if form is None:
            report.error = f"No line of this file is a JSON object. Expected on each line: {_expected()}."
    except FileError as error:
        report.error = str(error)
    if report.error is None and report.good == 0:
        report.error = f"None of the {report.rows:,} rows can be trained on; the report says why for each."
    return result


def _rows(file: IO[bytes]) -> Iterator[tuple[int, bytes | RowError]]:
    for count, (number, line) in enumerate(lines(file)):
        if count == MAX_ROWS:
            raise FileError(f"More than {MAX_ROWS:,} rows. Upload the file in parts.")
        yield number, line


def _take(result: Validated, form: Format | None, number: int, line: bytes | RowError) -> None:
    report = result.report
    report.rows += 1
    try:
        if isinstance(line, RowError):
            raise line
        row = parse_row(line)
        assert form is not None, "a file with a readable row has a format"
        if not form.fits(row):
            _other_format(row, form)
        talk = form.parse(row)
    except RowError as error:
        report.bad += 1
        problem = {"line": number, "field": error.field, "reason": error.reason, "fix": error.fix}
        result.problems.write(json.dumps(problem, ensure_ascii=True).encode() + b"\n")
        if len(report.problems) < LISTED_PROBLEMS:
            report.problems.append(problem)
        return
    report.good += 1
    report.examples += talk.examples
    report.notes.update(talk.notes)
    kept = {"id": str(number), "messages": [turn.as_json() for turn in talk.turns], "split": "train"}
    result.conversations.write(json.dumps(kept, ensure_ascii=False).encode() + b"\n")


def _sniff(file: IO[bytes]) -> Format | None:
    """The file's format, from the first rows that are JSON at all; None if there is no such row."""
    rows: list[dict[str, Any]] = []
    for count, (_, line) in enumerate(lines(file)):
        if count == MAX_ROWS or len(rows) == _SNIFFED_ROWS:
            break
        if isinstance(line, bytes):
            try:
                rows.append(parse_row(line))
            except RowError:
                continue
    form = sniff(rows) if rows else None
    if rows and form is None:
        keys = ", ".join(sorted({key[:40] for row in rows for key in row})[:10]) or "(none)"
        raise FileError(
            f"This file's format is not known: its rows have the keys {keys}. Expected on each line: {_expected()}."
        )
    return form


def _expected() -> str:
    return " or ".join(known.KEYS for known in FORMATS)


def _other_format(row: dict[str, Any], form: Format) -> None:
    other = sniff([row])
    raise RowError(
        "line",
        f"a row of the format {other.NAME} in a file of {form.NAME}"
        if other
        else f"not a row of {form.NAME}",
        f"Write it like the others: {form.KEYS}.",
    )
