"""Rows that say what an earlier one said, but for case, spacing and punctuation, and rows that nearly do."""

from functools import cached_property
from typing import Any

import numpy as np

from webapp.datasets.alike import Sketches
from webapp.datasets.conversation import Conversation
from webapp.datasets.fingerprint import digest_of, plain

#: Rows of each kind that the report lists.
LISTED = 100


class Duplicates:
    """Nothing is dropped: a repeated row may be meant, and a dropped one would be missed.

    Memory: about 400 bytes a row, of which there are at most 200,000.
    """

    def __init__(self) -> None:
        self.count = 0
        #: {id, line, same_as}: the row, the line where it begins, and that of the first row that says the same.
        self.listed: list[dict[str, Any]] = []
        self._seen: dict[int, int] = {}
        #: Of the rows that say something new.
        self._rows: list[tuple[str, int]] = []
        self._learned, self._others = Sketches(), Sketches()

    def look(self, talk: Conversation) -> None:
        said = [(turn, plain(turn.content)) for turn in talk.said]
        told = digest_of(part for turn, words in said for part in (turn.role, words))
        if told in self._seen:
            self.count += 1
            if len(self.listed) < LISTED:
                self.listed.append({"id": talk.id, "line": talk.line, "same_as": self._seen[told]})
            return
        self._seen[told] = talk.line
        self._rows.append((talk.id, talk.line))
        learned = [turn.weight == 1 or turn is talk.rejected for turn, _ in said]
        self._learned.add(" ".join(words for (_, words), its in zip(said, learned, strict=True) if its))
        # A system message is often the same everywhere.
        self._others.add(
            " ".join(
                words
                for (turn, words), its in zip(said, learned, strict=True)
                if not its and turn.role != "system"
            )
        )

    @cached_property
    def nearly(self) -> list[dict[str, Any]]:
        """{id, line, like}: rows that say nearly what an earlier one says, in what is learned and in the rest alike.

        When all rows were looked at.
        """
        found: dict[int, int] = {}
        rank = np.arange(len(self._rows))
        for first, second in self._learned.alike(rank):
            both = self._others.are_alike(first, second)
            for earlier, later in zip(first[both].tolist(), second[both].tolist(), strict=True):
                found[later] = min(earlier, found.get(later, earlier))
        return [
            {"id": self._rows[row][0], "line": self._rows[row][1], "like": self._rows[found[row]][1]}
            for row in sorted(found)
        ]
