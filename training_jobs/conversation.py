"""A normalised conversation, as webapp writes it and trainers read it: part of the messages (messages.py)."""

import hashlib
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from training_jobs.message import Message


class Turn(Message):
    """One message of a conversation. `weight` 0 keeps an assistant's from being trained; others never are.

    No text is empty: an answer of nothing would teach the model to be silent.
    """

    role: Literal["system", "user", "assistant"]
    content: str
    weight: Literal[0, 1] = 1

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.content.strip():
            raise ValueError(f"an empty {self.role} message")
        return self


class Conversation(Message):
    """A line of the normalised file (JSONL) that webapp writes and trainers read.

    `id` is SOURCE, SOURCE.PART or SOURCE.PART.PIECE (docs/datasets.md): a row of the upload; a conversation of a chat,
    between two long silences; a piece of one that was too long.

    With `rejected` it is a preference pair: two answers to one prompt, of which the last message is the preferred one.
    """

    id: str
    messages: Annotated[list[Turn], Field(min_length=1)]
    rejected: str | None = None
    split: Literal["train", "validation"] = "train"

    @model_validator(mode="after")
    def _pairs_have_two_answers(self) -> Self:
        if self.rejected is None:
            return self
        if not self.rejected.strip():
            raise ValueError("an empty rejected answer")
        if len(self.messages) < 2 or self.messages[-1].role != "assistant":
            raise ValueError("no preferred answer beside the rejected one")
        return self

    @property
    def source(self) -> str:
        """The row, chat or text that it comes from; of a pair its prompt, which others may answer too."""
        return self._prompt or self.id.partition(".")[0]

    @property
    def whole(self) -> str:
        """The conversation that it is, or is a piece of: what one says is like what the rest of it says."""
        return self._prompt or ".".join(self.id.split(".")[:2])

    @property
    def _prompt(self) -> str:
        if self.rejected is None:
            return ""
        return hashlib.blake2b(
            "\0".join(part for turn in self.messages[:-1] for part in (turn.role, turn.content)).encode()
        ).hexdigest()
