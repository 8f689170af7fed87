"""What all messages between webapp and trainers have in common."""

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """Immutable, and strict about unknown fields, so that two versions never half-understand each other."""

    model_config = ConfigDict(frozen=True, extra="forbid")
