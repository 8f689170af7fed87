"""Rows that say what an earlier one said, but for case, spacing and punctuation."""

import hashlib
import re
import unicodedata

from webapp.datasets.conversation import Conversation

#: Ids that the report lists.
LISTED = 100
_SAID = re.compile(r"[\W_]+")


class Duplicates:
    """Nothing is dropped: a repeated row may be meant, and a dropped one would be missed. Memory: 8 bytes a row."""

    def __init__(self) -> None:
        self.count = 0
        self.ids: list[str] = []
        self._seen: set[int] = set()

    def look(self, talk: Conversation) -> None:
        digest = hashlib.blake2b(digest_size=7)
        for turn in talk.turns:
            # Emoji alone are all punctuation to a pattern: such a text is compared as it stands.
            said = _SAID.sub(" ", unicodedata.normalize("NFKC", turn.content).casefold()).strip()
            digest.update(f"{turn.role}\x00{said or turn.content}\x00".encode())
        number = int.from_bytes(digest.digest())
        if number in self._seen:
            self.count += 1
            if len(self.ids) < LISTED:
                self.ids.append(talk.id)
        self._seen.add(number)
