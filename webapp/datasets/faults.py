"""What can be wrong with an upload: a row that cannot be trained on, or a file of which nothing can be read."""

from dataclasses import dataclass

#: Characters of a key or a name.
SHOWN = 60


def shown(text: str) -> str:
    """A key or a name from a file as reports may hold it: short, and without what no database stores (NUL)."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text[:SHOWN])


class RowError(Exception):
    """A row that cannot be trained on. Texts name the field and the mend, and never quote the row."""

    def __init__(self, field: str, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.field = field
        self.reason = reason
        self.fix = fix


class FileError(Exception):
    """Nothing of the file can be read; the text says what it is and what to do. `code` is for programs."""

    def __init__(self, text: str, *, code: str = "unreadable_file") -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Bad:
    """A row error and its place: the line, and the number of the entry if the upload is an archive."""

    line: int
    error: RowError
    entry: int | None = None
