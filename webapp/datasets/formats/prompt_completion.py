"""Prompt and completion: {"prompt": "…", "completion": "…"} a line, the older form of fine-tuning files."""

from collections import Counter
from typing import Any

from webapp.datasets.conversation import Conversation, RowError, Turn, conversation

NAME = "prompt_completion"
KEYS = '{"prompt": "…", "completion": "…"}'

_KNOWN = {"prompt", "completion", "system", "id"}
_RIVALS = {"text", "messages", "conversations", "instruction", "output"}


def fits(row: dict[str, Any]) -> bool:
    return "prompt" in row and "completion" in row and "messages" not in row


def parse(row: dict[str, Any]) -> Conversation:
    if rivals := sorted(_RIVALS & set(row)):
        raise RowError(
            rivals[0],
            f"both 'prompt' and '{rivals[0]}': it is unclear which is meant",
            f"Keep one of them; drop '{rivals[0]}' if prompt and completion are complete.",
        )
    notes: Counter[str] = Counter()
    if unknown := sorted(set(row) - _KNOWN):
        notes[f"unknown keys were ignored: {', '.join(key[:40] for key in unknown[:5])}"] += 1
    # The old form asked for a space before and a stop word after: neither is part of what is said.
    turns = [Turn("user", _text(row, "prompt")), Turn("assistant", _text(row, "completion"), 1)]
    if row.get("system") is not None:
        turns.insert(0, Turn("system", _text(row, "system")))
    return conversation(turns, notes)


def _text(row: dict[str, Any], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        raise RowError(key, "not text", f'Write "{key}" as a string.')
    if key != "system" and not value.strip():
        raise RowError(key, "empty", f"Write the {key}, or leave the row out.")
    return value.strip()
