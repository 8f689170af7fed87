"""Prompt and completion: {"prompt": "…", "completion": "…"} a line, the older form of fine-tuning files."""

from typing import Any

from webapp.datasets.conversation import Conversation, Turn, conversation
from webapp.datasets.row_keys import keys_check, text_of

NAME = "prompt_completion"
KEYS = '{"prompt": "…", "completion": "…"}'

_KNOWN = {"prompt", "completion", "system", "id"}
_RIVALS = {"text", "messages", "conversations", "instruction", "output"}


def fits(row: dict[str, Any]) -> bool:
    return "prompt" in row and "completion" in row and "messages" not in row


def parse(row: dict[str, Any]) -> Conversation:
    notes = keys_check(row, known=_KNOWN, rivals=_RIVALS, own="prompt")
    # The old form asked for a space before and a stop word after: neither is part of what is said.
    turns = [Turn("user", text_of(row, "prompt")), Turn("assistant", text_of(row, "completion"), 1)]
    if row.get("system") is not None:
        turns.insert(0, Turn("system", text_of(row, "system")))
    return conversation(turns, notes)
