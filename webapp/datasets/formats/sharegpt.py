"""ShareGPT: {"conversations": [{"from": "human" | "gpt" | …, "value": "…"}], "system"?, "tools"?}."""

import json
from collections import Counter
from typing import Any

from webapp.datasets.conversation import Conversation, Turn, conversation
from webapp.datasets.faults import RowError
from webapp.datasets.row_keys import keys_check, text_of
from webapp.datasets.tool_text import call_text, result_text

NAME = "sharegpt"
KEYS = '{"conversations": [{"from": "human", "value": "…"}, {"from": "gpt", "value": "…"}]}'

_KNOWN = {"conversations", "system", "tools", "id"}
_RIVALS = {"messages", "prompt", "completion", "instruction", "output"}
_ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "observation": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "function_call": "assistant",
}


def fits(row: dict[str, Any]) -> bool:
    return "conversations" in row


def parse(row: dict[str, Any]) -> Conversation:
    notes = keys_check(row, known=_KNOWN, rivals=_RIVALS, own="conversations")
    said = row["conversations"]
    if not isinstance(said, list) or not said:
        raise RowError(
            "conversations", "not a list of messages", 'Write [{"from": "human", "value": "…"}, …].'
        )
    if row.get("tools"):
        notes["tool definitions are not part of training yet and were left out"] += 1
    turns = [_turn(index, message, notes) for index, message in enumerate(said)]
    if row.get("system") not in (None, ""):
        turns.insert(0, Turn("system", text_of(row, "system")))
    return conversation(turns, notes)


def _turn(index: int, message: Any, notes: Counter[str]) -> Turn:
    where = f"conversations[{index}]"
    if not isinstance(message, dict):
        raise RowError(where, "not an object", 'Write {"from": …, "value": …}.')
    speaker = message.get("from")
    role = _ROLES.get(speaker) if isinstance(speaker, str) else None
    if role is None:
        raise RowError(
            f"{where}.from", "not a known speaker", "Use human, gpt, function_call or observation."
        )
    value = message.get("value")
    if not isinstance(value, str):
        raise RowError(f"{where}.value", "not text", 'Write "value" as a string.')
    if speaker == "function_call":
        value = _call(f"{where}.value", value)
        notes["tool calls were written into the assistant's text"] += 1
    if speaker == "observation":
        value = result_text(value)
        notes["tool results were written as user messages"] += 1
    return Turn(role, value, 1 if role == "assistant" else None)


def _call(where: str, value: str) -> str:
    try:
        call = json.loads(value)
    except (ValueError, RecursionError):
        call = None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise RowError(where, "not a function call", 'Write {"name": "…", "arguments": {…}} as JSON.')
    return call_text(where, call["name"], call.get("arguments", {}))
