"""Uploads as tests write them, and what became of them."""

import io
import json
import zipfile
from typing import Any

from webapp.datasets.upload import Asked, Voice
from webapp.datasets.validate import Validated, validate

#: (role, content) of each turn.
Talk = list[tuple[str, str]]


def check(
    data: bytes | str, me: str | None = None, voice: Voice | None = "assistant", *, mask: bool = False
) -> Validated:
    return validate(io.BytesIO(data.encode() if isinstance(data, str) else data), Asked(me, voice, mask))


def rows(result: Validated) -> list[dict[str, Any]]:
    result.conversations.file.seek(0)
    return [json.loads(each) for each in result.conversations.file]


def talks(result: Validated) -> list[Talk]:
    assert result.report.error is None, result.report.error
    return [[(turn["role"], turn["content"]) for turn in row["messages"]] for row in rows(result)]


def ids(result: Validated) -> list[str]:
    return [row["id"] for row in rows(result)]


def zipped(files: dict[str, bytes | str], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """The same bytes at any time, because they name tests, and test processes compare those names."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, compress_type=method)
    return packed.getvalue()
