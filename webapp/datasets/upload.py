"""What was uploaded, as text in UTF-8: one file, or the files of an archive. Nothing is told from names."""

import codecs
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Literal

from webapp.datasets.faults import FileError
from webapp.datasets.zips import entries

Voice = Literal["me", "assistant"]

_CHUNK = 1 << 16
_SPOOL_BYTES = 4_000_000
_BOM = b"\xef\xbb\xbf"
#: UTF-32 first: its mark begins with that of UTF-16.
_WIDE = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
#: First bytes of what people upload by mistake, and what to tell them.
_MAGIC = {
    b"\x1f\x8b": "This is a gzip archive. Unpack it and upload the text file.",
    b"7z\xbc\xaf": "This is a 7z archive. Unpack it and upload the text file, or a ZIP of it.",
    b"Rar!": "This is a RAR archive. Unpack it and upload the text file, or a ZIP of it.",
    b"%PDF": "This is a PDF. Upload the conversations as JSON Lines, or the text as a .txt file.",
    b"{\\rtf": "This is an RTF document. Save it as plain text (UTF-8) and upload that.",
    b"PAR1": "This is a Parquet file. Export it as JSON Lines.",
    b"SQLite format 3": "This is a SQLite database. Export the chats with the app's own export instead.",
}
HTML = (
    "This export is HTML, made for reading. Export again in a form for machines: Telegram Desktop: Export chat "
    "history, format 'Machine-readable JSON'. Facebook and Instagram: Download your information, format JSON. "
    "DiscordChatExporter: format JSON. ChatGPT and Claude: upload the ZIP that they send, as it is. WhatsApp: "
    "Export chat, without media."
)


@dataclass(frozen=True)
class Asked:
    """What the uploader says: who 'me' is in people's chats, and whose voice to train in assistants' exports.

    `mask`: replace what is sensitive by placeholders.
    """

    me: str | None = None
    voice: Voice = "assistant"
    mask: bool = False


@dataclass(frozen=True)
class Member:
    """A text file, opened as often as needed, but one at a time. `entry`: its number in an archive.

    `folder` tells the chats of an archive apart. It is compared, and never used as a path.
    """

    reopen: Callable[[], IO[bytes]]
    entry: int | None = None
    folder: str = ""

    def open(self) -> IO[bytes]:
        """From the start, after a byte order mark."""
        file = self.reopen()
        return file if file.read(len(_BOM)) == _BOM else self.reopen()

    @property
    def prefix(self) -> str:
        """What makes a line's number unique among the files of an archive."""
        return f"{self.entry}:" if self.entry else ""


@dataclass(frozen=True)
class Upload:
    """`others`: files of the same archive that the format did not claim (lists of users and the like)."""

    members: tuple[Member, ...]
    others: tuple[Member, ...] = ()


def open_upload(file: IO[bytes]) -> Upload:
    """Look at a seekable file's first bytes; raises FileError for what holds no text."""
    file.seek(0)
    head = file.read(512)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return Upload(
            tuple(Member(entry.open, entry.number, entry.folder) for entry in entries(file)),
        )
    for magic, advice in _MAGIC.items():
        if head.startswith(magic):
            raise FileError(advice)
    if not head.removeprefix(_BOM).strip():
        raise FileError("This file is empty.")
    for mark, encoding in _WIDE.items():
        if head.startswith(mark):
            return Upload((_plain(_decoded(file, encoding)),))
    if b"\x00" in head:
        wide = head[1:64:2].count(0) > 16 or head[0:64:2].count(0) > 16
        raise FileError(
            "This file is UTF-16 or UTF-32. Save it as UTF-8 and upload it again."
            if wide
            else "This is a binary file. Upload conversations as JSON Lines, or a chat as its app exports it."
        )
    if is_html(head):
        raise FileError(HTML, code="html_export")
    return Upload((_plain(file),))


def is_html(head: bytes) -> bool:
    return head.removeprefix(_BOM).lstrip().lower().startswith((b"<!doctype html", b"<html", b"<?xml"))


def _plain(file: IO[bytes]) -> Member:
    def reopen() -> IO[bytes]:
        file.seek(0)
        return file

    return Member(reopen)


def _decoded(file: IO[bytes], encoding: str) -> IO[bytes]:
    """The same text in UTF-8, in a temporary file."""
    file.seek(0)
    decoder = codecs.getincrementaldecoder(encoding)()
    result = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115 (goes with the upload)
    try:
        while chunk := file.read(_CHUNK):
            result.write(decoder.decode(chunk).encode())
        result.write(decoder.decode(b"", final=True).encode())
    except UnicodeError:
        raise FileError(
            f"This file begins as {encoding.upper()}, but is not that throughout. Save it as UTF-8 and upload it again."
        ) from None
    return result
