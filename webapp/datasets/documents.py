"""The objects that a format wants of a JSON document, each strictly read; what is wrong is said with its line."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from webapp.datasets.faults import Bad, RowError
from webapp.datasets.scan import Broken, Path, Pattern, values
from webapp.datasets.strict_json import parse_row
from webapp.datasets.upload import Member

T = TypeVar("T")


@dataclass(frozen=True)
class Found:
    """`path`: its place in the document; `line`: where it begins."""

    member: Member
    path: Path
    line: int
    row: dict[str, Any]


def objects(member: Member, wanted: Collection[Pattern], limit: int) -> Iterator[Found | Bad]:
    """Each object at a wanted place. One that is bad, or longer than `limit` bytes, is its error; the rest goes on."""
    try:
        for value in values(member.open(), wanted, limit):
            try:
                if value.raw is None:
                    raise RowError("line", f"longer than {limit:,} bytes", "Leave it out, or split it.")
                yield Found(member, value.path, value.line, parse_row(value.raw))
            except RowError as error:
                yield Bad(value.line, error, member.entry)
    except Broken as error:
        fault = RowError(
            "line",
            f"the JSON cannot be read from here on: {error.reason}",
            "Upload the export as the app wrote it; if it is whole, export it again.",
        )
        yield Bad(error.line, fault, member.entry)


def read(
    member: Member, wanted: Collection[Pattern], limit: int, make: Callable[[Found], T | None]
) -> Iterator[T | Bad]:
    """What `make` makes of each object. None is passed over, and a RowError that it raises is said with the line."""
    for found in objects(member, wanted, limit):
        if isinstance(found, Bad):
            yield found
            continue
        try:
            made = make(found)
        except RowError as error:
            yield Bad(found.line, error, member.entry)
            continue
        if made is not None:
            yield made
