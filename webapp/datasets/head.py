"""What can be seen of a file without reading all of it: what its format is told by."""

from collections.abc import Collection
from functools import cached_property
from itertools import islice
from typing import Any

from webapp.datasets.documents import Found, objects
from webapp.datasets.faults import RowError
from webapp.datasets.lines import MAX_LINE_BYTES, MAX_ROWS, lines
from webapp.datasets.mojibake import repaired
from webapp.datasets.scan import ANY, Broken, Pattern, places
from webapp.datasets.strict_json import parse_row
from webapp.datasets.upload import Member

_HEAD_BYTES = 1 << 16
_ROWS = 20


class Head:
    """`signs`: the places in JSON documents that some format is known by. Each property is found out when asked for."""

    def __init__(self, member: Member, signs: Collection[frozenset[Pattern]]) -> None:
        self._member = member
        self._signs = signs

    @cached_property
    def start(self) -> bytes:
        return self._member.open().read(_HEAD_BYTES)

    @cached_property
    def text(self) -> list[str]:
        """The first lines; the last one may be cut."""
        return repaired(self.start.decode("utf-8", "replace")).splitlines()

    @property
    def is_array(self) -> bool:
        return self.start.lstrip()[:1] == b"["

    @cached_property
    def places(self) -> frozenset[Pattern]:
        """Those of the signs that the first JSON value has, up to where one format's are complete; of an array,
        those of its first elements."""
        found: set[Pattern] = set()
        if self.start.lstrip()[:1] not in (b"[", b"{"):
            return frozenset()
        try:
            for path in places(self._member.open(), frozenset({(ANY,)}).union(*self._signs)):
                if path[0] == _ROWS:
                    break
                place = tuple(ANY if isinstance(part, int) else part for part in path)
                if place not in found:
                    found.add(place)
                    if any(sign <= found for sign in self._signs):
                        break
        except Broken:
            pass
        return frozenset(found)

    def has_any(self, signs: Collection[frozenset[Pattern]]) -> bool:
        """Whether all the places of one of a format's signs are there."""
        return any(sign <= self.places for sign in signs)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The first objects that are JSON at all: of an array, or one a line."""
        if self.is_array:
            found = islice(objects(self._member, [(ANY,)], MAX_LINE_BYTES), MAX_ROWS)
            return list(islice((each.row for each in found if isinstance(each, Found)), _ROWS))
        rows: list[dict[str, Any]] = []
        for _, line in islice(lines(self._member.open()), MAX_ROWS):
            if isinstance(line, bytes):
                try:
                    rows.append(parse_row(line))
                except RowError:
                    continue
            if len(rows) == _ROWS:
                break
        return rows
