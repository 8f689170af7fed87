"""Alpaca: {"instruction", "input"?, "output", "system"?, "history"?: [[question, answer], …]}."""

from typing import Any

from webapp.datasets.conversation import Conversation, Turn, conversation
from webapp.datasets.faults import RowError
from webapp.datasets.row_keys import keys_check, text_of

NAME = "alpaca"
KEYS = '{"instruction": "…", "input": "…", "output": "…"}'

_KNOWN = {"instruction", "input", "output", "system", "history", "id"}
_RIVALS = {"messages", "conversations", "prompt", "completion"}


def fits(row: dict[str, Any]) -> bool:
    return "instruction" in row and "output" in row


def parse(row: dict[str, Any]) -> Conversation:
    notes = keys_check(row, known=_KNOWN, rivals=_RIVALS, own="instruction")
    asked = text_of(row, "instruction")
    if row.get("input") not in (None, ""):
        asked = f"{asked}\n{text_of(row, 'input')}".strip()
    turns = [*_history(row.get("history")), Turn("user", asked), Turn("assistant", text_of(row, "output"), 1)]
    if row.get("system") not in (None, ""):
        turns.insert(0, Turn("system", text_of(row, "system")))
    return conversation(turns, notes)


def _history(history: Any) -> list[Turn]:
    """Earlier turns are context: Alpaca's readers train the output alone."""
    if history is None:
        return []
    if not isinstance(history, list):
        raise RowError("history", "not a list", "Write [[question, answer], …], or leave it out.")
    turns = []
    for index, pair in enumerate(history):
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
            raise RowError(
                f"history[{index}]", "not a question and an answer", "Write two strings: [question, answer]."
            )
        turns += [Turn("user", pair[0]), Turn("assistant", pair[1], 0)]
    return turns
