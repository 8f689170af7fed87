"""An upload on its way in: received, checked row by row, its bytes in storage. What comes after is its row (files.py).

All of it takes as long as the file is large, so it holds no database connection, and only a few are checked at once.
"""

import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import IO

from webapp.config.faults import BadRequest, TooLarge, Unavailable
from webapp.config.pool import connection_give_back
from webapp.config.settings import settings
from webapp.datasets.storage import objects_put
from webapp.datasets.upload import Asked
from webapp.datasets.validate import HashedFile, Validated, validate
from webapp.tenants.models import Tenant

#: The one purpose of uploads.
UPLOAD_PURPOSE = "fine-tune"
_CHUNK = 1 << 20
#: Checking is arithmetic: more at once would only make each of them, and every chat, slower.
_AT_ONCE = 4
_PATIENCE_SECONDS = 20.0
_checking = threading.BoundedSemaphore(_AT_ONCE)


@dataclass(frozen=True)
class Intake:
    """Checked bytes that are in storage, and go again in an hour unless a row is made for them."""

    raw: HashedFile
    checked: Validated

    @property
    def parts(self) -> list[HashedFile]:
        """What is stored: the upload, its conversations, the list of its bad rows."""
        parts = [self.raw]
        if self.checked.report.error is None:
            parts.append(self.checked.conversations)
        if self.checked.problems.size:
            parts.append(self.checked.problems)
        return parts


@contextmanager
def upload_take(
    *,
    tenant: Tenant,
    stream: IO[bytes] | Iterable[bytes],
    purpose: str = UPLOAD_PURPOSE,
    asked: Asked | None = None,
) -> Iterator[Intake]:
    """Take an upload in; never within a transaction. Its temporary files go at the block's end.

    `asked`: who 'me' is in a chat export, and whose voice to train in an assistant's.

    Raises TooLarge, BadRequest (another purpose), Unavailable (storage is away, or too many uploads at once); never
    for what is in the file.
    """
    if purpose != UPLOAD_PURPOSE:
        raise BadRequest(
            f"Upload with purpose '{UPLOAD_PURPOSE}'; others are not used here.",
            code="bad_purpose",
            param="purpose",
        )
    connection_give_back()
    with closing(HashedFile()) as raw:
        _receive(stream, raw)
        with closing(_checked(raw, asked)) as checked:
            intake = Intake(raw, checked)
            objects_put(tenant=tenant.storage_id, parts=intake.parts)
            yield intake


def _receive(stream: IO[bytes] | Iterable[bytes], raw: HashedFile) -> None:
    for chunk in _chunks(stream):
        raw.write(chunk)
        if raw.size > settings().max_upload_bytes:
            raise TooLarge(
                f"The file is larger than {settings().max_upload_bytes:,} bytes. Upload it in parts.",
                code="file_too_large",
                param="file",
            )
    raw.file.seek(0)


def _checked(raw: HashedFile, asked: Asked | None) -> Validated:
    if not _checking.acquire(timeout=_PATIENCE_SECONDS):
        raise Unavailable(
            "Many files are being checked at the moment. Upload yours again shortly.", code="uploads_busy"
        )
    try:
        return validate(raw.file, asked, max_tokens=settings().max_model_len)
    finally:
        _checking.release()


def _chunks(stream: IO[bytes] | Iterable[bytes]) -> Iterator[bytes]:
    if hasattr(stream, "read"):
        while chunk := stream.read(_CHUNK):
            yield chunk
    else:
        yield from stream
