"""What was uploaded, as text in UTF-8: one file, or the files of an archive. Nothing is told from names."""

import codecs
import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Literal

from webapp.datasets.faults import FileError
from webapp.datasets.mistaken import check_markup, magic_advice
from webapp.datasets.zips import Entry, entries

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


@dataclass(frozen=True)
class Asked:
    """What the uploader says: who 'me' is in people's chats, and whose voice to train in assistants' exports. Both are
    asked for where they are needed and not said.

    `mask`: replace what is sensitive by placeholders.
    """

    me: str | None = None
    voice: Voice | None = None
    mask: bool = False


@dataclass(frozen=True)
class Member:
    """A text file, opened as often as needed, but one at a time. `entry`: its number in an archive.

    `folder` tells the chats of an archive apart, `name` is for reports. Neither is ever used as a path.
    """

    reopen: Callable[[], IO[bytes]]
    entry: int | None = None
    folder: str = ""
    name: str = ""

    def open(self) -> IO[bytes]:
        """From the start, after a byte order mark."""
        file = self.reopen()
        return file if file.read(len(_BOM)) == _BOM else self.reopen()

    @property
    def prefix(self) -> str:
        """What makes a line's number unique among the files of an archive."""
        return f"{self.entry}:" if self.entry else ""


@dataclass(frozen=True)
class Other:
    """A file of an archive that the format did not claim, and why."""

    member: Member
    reason: str


@dataclass(frozen=True)
class Upload:
    """`others`: the rest of the same archive (lists of users, pictures, files of another format)."""

    members: tuple[Member, ...]
    others: tuple[Other, ...] = ()


def open_upload(file: IO[bytes]) -> Upload:
    """Look at a seekable file's first bytes; raises FileError for what holds no text."""
    file.seek(0)
    head = file.read(512)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return Upload(tuple(map(_packed, entries(file))))
    if advice := magic_advice(head):
        raise FileError(advice)
    if not head.removeprefix(_BOM).strip():
        raise FileError("This file is empty.")
    if encoding := _wide(head):
        try:
            file.seek(0)
            return Upload((_plain(_decoded(file, encoding)),))
        except UnicodeError:
            raise FileError(
                f"This file begins as {encoding.upper()}, but is not that throughout. Save it as UTF-8 and upload it "
                "again."
            ) from None
    if b"\x00" in head:
        raise FileError(
            "This file is UTF-16 or UTF-32. Save it as UTF-8 and upload it again."
            if is_unmarked_wide(head)
            else "This is a binary file. Upload conversations as JSON Lines, or a chat as its app exports it."
        )
    check_markup(head)
    return Upload((_plain(file),))


def is_unmarked_wide(head: bytes) -> bool:
    """Whether every other byte is mostly zero: UTF-16 or UTF-32 without a mark."""
    return head[1:64:2].count(0) > 16 or head[0:64:2].count(0) > 16


def _wide(head: bytes) -> str | None:
    return next((encoding for mark, encoding in _WIDE.items() if head.startswith(mark)), None)


def _packed(entry: Entry) -> Member:
    """What begins with a mark and is no such text (some sounds do) stays as it is: a file without text."""
    reopen = entry.open
    if encoding := _wide(entry.open().read(4)):
        # Decoded anew each time: a large archive has many, and only one is read at once.
        def decoded() -> IO[bytes]:
            return _decoded(entry.open(), encoding)

        with contextlib.suppress(UnicodeError):
            decoded()
            reopen = decoded
    return Member(reopen, entry.number, entry.folder, entry.name)


def _plain(file: IO[bytes]) -> Member:
    def reopen() -> IO[bytes]:
        file.seek(0)
        return file

    return Member(reopen)


def _decoded(file: IO[bytes], encoding: str) -> IO[bytes]:
    """The same text in UTF-8, in a temporary file, at its start; raises UnicodeError."""
    decoder = codecs.getincrementaldecoder(encoding)()
    result = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115 (goes with the upload)
    while chunk := file.read(_CHUNK):
        result.write(decoder.decode(chunk).encode())
    result.write(decoder.decode(b"", final=True).encode())
    result.seek(0)
    return result
