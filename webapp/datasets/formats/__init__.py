"""The formats of uploads, one module each. A module is a format: add it to FORMATS and it is recognised.

Each has NAME (said in reports), KEYS (what its rows are known by, said when nothing fits), `fits(row)` and
`parse(row) -> Conversation`, which raises RowError.
"""

from typing import Any, Protocol

from webapp.datasets.conversation import Conversation
from webapp.datasets.formats import openai_chat, prompt_completion


class Format(Protocol):
    NAME: str
    KEYS: str

    def fits(self, row: dict[str, Any]) -> bool:
        """Whether the row's keys are this format's."""

    def parse(self, row: dict[str, Any]) -> Conversation:
        """The row's conversation; raises RowError."""


FORMATS: tuple[Format, ...] = (openai_chat, prompt_completion)


def sniff(rows: list[dict[str, Any]]) -> Format | None:
    """The format that most of these first rows have, whatever the file is called; None if none fits any."""
    counted = [(sum(form.fits(row) for row in rows), form) for form in FORMATS]
    count, form = max(counted, key=lambda pair: pair[0])
    return form if count else None
