"""Rows that are longer than a trainer takes, as far as that can be told without a base model's tokenizer."""

from typing import Any

from webapp.datasets.conversation import Conversation

#: Rows that the report lists.
LISTED = 100
#: Of UTF-8. English comes to 4.5; what has two or three bytes a letter may come to more with a large vocabulary.
_BYTES_A_TOKEN = 5


class Lengths:
    """Counts rows with an answer that, with all before it, has more than `max_tokens`. Shorter ones may have, too."""

    def __init__(self, max_tokens: int) -> None:
        self.max_bytes = max_tokens * _BYTES_A_TOKEN
        self.max_tokens = max_tokens
        self.count = 0
        #: {id, line, bytes}
        self.listed: list[dict[str, Any]] = []

    def look(self, talk: Conversation) -> None:
        size = 0
        for turn in talk.turns:
            size += len(turn.content.encode())
            if turn.weight == 1 and size > self.max_bytes:
                self.count += 1
                if len(self.listed) < LISTED:
                    self.listed.append({"id": talk.id, "line": talk.line, "bytes": size})
                return

    def told(self) -> str:
        """In a sentence, if there are any; else empty."""
        if not self.count:
            return ""
        return (
            f"{self.count:,} × an answer has, with all that is before it, more than {self.max_bytes:,} bytes, which is "
            f"more than {self.max_tokens:,} tokens of most texts: training leaves out what is too long. Split those "
            "conversations."
        )
