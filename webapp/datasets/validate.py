"""An upload, whatever its format, into conversations and a report. Memory is bounded whatever the file holds."""

import hashlib
import json
import tempfile
from dataclasses import dataclass, field
from typing import IO, Any

from webapp.datasets.conversation import Conversation
from webapp.datasets.faults import Bad, FileError
from webapp.datasets.formats import recognise
from webapp.datasets.lengths import Lengths
from webapp.datasets.lines import MAX_ROWS
from webapp.datasets.report import LISTED_PROBLEMS, Report
from webapp.datasets.upload import Asked, open_upload

#: Of an answer with its prompt, where the installation says nothing else.
MAX_TOKENS = 2048
#: In memory up to here, then a temporary file.
_SPOOL_BYTES = 4_000_000


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
class Validated:
    """`conversations` is what trainers read; `problems` lists every bad row, one JSON object a line."""

    report: Report
    conversations: HashedFile = field(default_factory=HashedFile)
    problems: HashedFile = field(default_factory=HashedFile)

    def close(self) -> None:
        self.conversations.close()
        self.problems.close()


def validate(file: IO[bytes], asked: Asked | None = None, *, max_tokens: int = MAX_TOKENS) -> Validated:
    """Read the whole of a seekable file. Never raises for what is in it. `max_tokens`: what trainers take."""
    result = Validated(Report(asked or Asked(), lengths=Lengths(max_tokens)))
    report = result.report
    try:
        form, upload = recognise(open_upload(file))
        report.format, report.others = form.NAME, upload.others
        for item in form.conversations(upload, report.asked, report.findings):
            if report.rows == MAX_ROWS:
                raise FileError(
                    f"More than {MAX_ROWS:,} rows. Upload the file in parts.", code="too_many_rows"
                )
            report.rows += 1
            if isinstance(item, Bad):
                _refuse(result, item)
            else:
                _keep(result, item)
    except FileError as error:
        report.error, report.code = str(error), error.code
    if report.error is None and report.good == 0:
        report.error = (
            f"None of the {report.rows:,} rows can be trained on; the report says why for each."
            if report.rows
            else "Nothing in this file can be trained on; the report's notes say what was left out and why."
        )
        report.code = "no_good_row"
    return result


def _refuse(result: Validated, bad: Bad) -> None:
    report, error = result.report, bad.error
    report.bad += 1
    problem = {"line": bad.line, "field": error.field, "reason": error.reason, "fix": error.fix}
    if bad.entry is not None:
        problem["entry"] = bad.entry
    result.problems.write(json.dumps(problem, ensure_ascii=True).encode() + b"\n")
    if len(report.problems) < LISTED_PROBLEMS:
        report.problems.append(problem)


def _keep(result: Validated, talk: Conversation) -> None:
    report = result.report
    report.good += 1
    report.examples += talk.examples
    report.notes.update(talk.notes)
    report.duplicates.look(talk)
    report.lengths.look(talk)
    report.languages.look(talk)
    report.sensitive.look(talk, mask=report.asked.mask)
    kept: dict[str, Any] = {
        "id": talk.id,
        "messages": [turn.as_json() for turn in talk.turns],
        "split": "train",
    }
    if talk.rejected is not None:
        kept["rejected"] = talk.rejected.content
    result.conversations.write(json.dumps(kept, ensure_ascii=False).encode() + b"\n")
