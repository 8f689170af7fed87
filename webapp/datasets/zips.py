"""A ZIP as an app hands it out: its entries as streams, capped before anything is unpacked. No path is ever used."""

import lzma
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from webapp.datasets.faults import SHOWN, FileError, shown

MAX_ENTRIES = 10_000
MAX_UNPACKED_BYTES = 400_000_000
#: Text packs 3 to 20 times smaller; more than this is a bomb. Small entries may be all alike.
MAX_RATIO = 200
_SMALL_BYTES = 1_000_000
#: The list of entries is read at once, and each becomes an object of ten times its size.
_MAX_READ_BYTES = 4_000_000
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
#: What zipfile raises for damaged archives.
_FAULTS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    NotImplementedError,
    EOFError,
    OSError,
    ValueError,
    OverflowError,
)
_DAMAGED = "This ZIP archive is damaged. Export it again, or upload the text file inside it."


@dataclass(frozen=True)
class Entry:
    """`number`: its place in the archive, from 1. `folder`: the name of what it lies in, to compare. `name`: for
    reports."""

    number: int
    folder: str
    name: str
    _archive: zipfile.ZipFile
    _info: zipfile.ZipInfo

    def open(self) -> IO[bytes]:
        """Its bytes; at most as many as it says, and a damaged one raises FileError while it is read."""
        try:
            return _Guarded(self._archive.open(self._info))  # type: ignore[return-value]
        except (*_FAULTS, RuntimeError):
            raise FileError(_DAMAGED) from None


def entries(file: IO[bytes]) -> Iterator[Entry]:
    """Raises FileError for an archive that is damaged, locked, or larger inside than a chat can be."""
    try:
        archive = zipfile.ZipFile(_Bounded(file))  # type: ignore[arg-type]
    except _FAULTS:
        raise FileError(_DAMAGED) from None
    infos = [info for info in archive.infolist() if not info.is_dir()]
    if len(infos) > MAX_ENTRIES:
        raise _too_many()
    if sum(info.file_size for info in infos) > MAX_UNPACKED_BYTES:
        raise FileError(
            f"This ZIP archive holds more than {MAX_UNPACKED_BYTES:,} bytes. Export without media, or in parts."
        )
    for number, info in enumerate(infos, start=1):
        if info.flag_bits & 1:
            raise FileError("This ZIP archive is locked with a password. Make one without.")
        if info.compress_type not in _METHODS:
            raise FileError("This ZIP archive is packed in an unusual way. Pack it again as an ordinary ZIP.")
        if info.file_size > max(_SMALL_BYTES, MAX_RATIO * info.compress_size):
            raise FileError(
                "This ZIP archive unpacks to far more than text does. Upload the text file itself."
            )
        folder = info.filename.rpartition("/")[0]
        yield Entry(number, folder, shown(info.filename[-SHOWN:]), archive, info)


def _too_many() -> FileError:
    return FileError(f"This ZIP archive has more than {MAX_ENTRIES:,} files. Export without media.")


class _Bounded:
    """The upload for zipfile, which would read a list of entries of any length."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell
        self.seekable = lambda: True

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(_MAX_READ_BYTES + 1 if size < 0 else min(size, _MAX_READ_BYTES + 1))
        if len(data) > _MAX_READ_BYTES:
            raise _too_many()
        return data


class _Guarded:
    """An entry's stream. What is wrong with it is the file's fault, wherever it shows."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def read(self, size: int) -> bytes:
        try:
            return self._stream.read(size)
        except _FAULTS:
            raise FileError(_DAMAGED) from None

    def readline(self, limit: int) -> bytes:
        try:
            return self._stream.readline(limit)
        except _FAULTS:
            raise FileError(_DAMAGED) from None
