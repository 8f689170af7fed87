"""What of a file is sensitive: counted for the report by kind and row, and on request replaced by placeholders."""

import hashlib
import re
from collections import Counter
from typing import Any

from webapp.datasets.conversation import Conversation, Turn
from webapp.datasets.sensitive import NAMES, sensitive
from webapp.datasets.spans import Kind, Span

#: Rows that the report lists of a kind.
LISTED = 100
#: Values that have a number of their own; about 15 MB. Those after them share a placeholder without one.
MAX_NUMBERED = 100_000
_WRITTEN = re.compile(r"[\s()./\u2010-\u2013-]+")


class Sensitive:
    """Of what was found, nothing is kept but counts, places and (where values are told apart) digests."""

    def __init__(self) -> None:
        self._found: Counter[Kind] = Counter()
        self._trained: Counter[Kind] = Counter()
        self._rows: Counter[Kind] = Counter()
        self._listed: dict[Kind, list[dict[str, Any]]] = {}
        self._numbers: dict[tuple[Kind, bytes], int] = {}
        self._last: Counter[Kind] = Counter()

    def look(self, talk: Conversation, *, mask: bool) -> None:
        """Count what the conversation holds; with `mask` it then holds placeholders instead."""
        kinds: set[Kind] = set()
        for turn in talk.said:
            spans = list(sensitive(turn.content))
            for span in spans:
                kinds.add(span.kind)
                self._found[span.kind] += 1
                self._trained[span.kind] += turn.weight == 1
            if mask and spans:
                self._mask(turn, spans)
        for kind in kinds:
            self._rows[kind] += 1
            listed = self._listed.setdefault(kind, [])
            if len(listed) < LISTED:
                listed.append({"id": talk.id, "line": talk.line})

    def _mask(self, turn: Turn, spans: list[Span]) -> None:
        parts, end = [], 0
        for span in spans:
            parts += [turn.content[end : span.start], self._placeholder(turn.content, span)]
            end = span.end
        turn.content = "".join(parts) + turn.content[end:]

    def _placeholder(self, text: str, span: Span) -> str:
        """The same for one value throughout the file, so that who is meant can still be told."""
        name = span.kind.replace("_", " ")
        value = text[span.start : span.end]
        if span.kind in ("phone", "card_number", "iban"):
            value = re.sub("^00", "+", _WRITTEN.sub("", value))
        digest = hashlib.blake2b(value.casefold().encode(), digest_size=8).digest()
        number = self._numbers.get((span.kind, digest))
        if number is None:
            if len(self._numbers) == MAX_NUMBERED:
                return f"[{name}]"
            self._last[span.kind] += 1
            number = self._numbers[span.kind, digest] = self._last[span.kind]
        return f"[{name} {number}]"

    def told(self) -> str:
        """The kinds and how many, in words; empty if there is nothing."""
        return ", ".join(
            f"{count:,} {one if count == 1 else several}"
            for kind, (one, several) in NAMES.items()
            if (count := self._found[kind])
        )

    def as_json(self) -> list[dict[str, Any]]:
        """A kind each: how many, how many of them in what is trained, in how many rows, and the first of those."""
        return [
            {
                "kind": kind,
                "count": self._found[kind],
                "trained": self._trained[kind],
                "rows": self._rows[kind],
                "listed": self._listed[kind],
            }
            for kind in NAMES
            if self._found[kind]
        ]
