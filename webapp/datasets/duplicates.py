"""Rows that say what an earlier one said, but for case, spacing and punctuation."""

from typing import Any

from webapp.datasets.conversation import Conversation
from webapp.datasets.fingerprint import fingerprint

#: Rows that the report lists.
LISTED = 100


class Duplicates:
    """Nothing is dropped: a repeated row may be meant, and a dropped one would be missed.

    Memory: about 150 bytes a row, of which there are at most 200,000.
    """

    def __init__(self) -> None:
        self.count = 0
        #: {id, line, same_as}: the row, the line where it begins, and that of the first row that says the same.
        self.listed: list[dict[str, Any]] = []
        self._seen: dict[int, int] = {}

    def look(self, talk: Conversation) -> None:
        said = fingerprint(part for turn in talk.said for part in (turn.role, turn.content))
        if said not in self._seen:
            self._seen[said] = talk.line
            return
        self.count += 1
        if len(self.listed) < LISTED:
            self.listed.append({"id": talk.id, "line": talk.line, "same_as": self._seen[said]})
