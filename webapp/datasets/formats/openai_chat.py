"""OpenAI chat: {"messages": [{"role", "content", "tool_calls"?, "weight"?}], "tools"?} a line."""

from collections import Counter
from typing import Any

from webapp.datasets.conversation import Conversation, Turn, conversation
from webapp.datasets.faults import RowError
from webapp.datasets.row_keys import keys_check
from webapp.datasets.tool_text import call_text, result_text

NAME = "openai_chat"
KEYS = '{"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}'

_KNOWN = {"messages", "tools", "parallel_tool_calls", "functions", "id"}
#: Keys of other formats: with them, it is unclear which of the two the row means.
_RIVALS = {"text", "prompt", "completion", "conversations", "instruction", "input", "output"}
_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "user",
    "function": "user",
}


def fits(row: dict[str, Any]) -> bool:
    return "messages" in row


def parse(row: dict[str, Any]) -> Conversation:
    notes = keys_check(row, known=_KNOWN, rivals=_RIVALS, own="messages")
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RowError("messages", "not a list of messages", 'Write "messages": [{"role": …, "content": …}].')
    if row.get("tools") or row.get("functions"):
        notes["tool definitions are not part of training yet and were left out"] += 1
    said = [turn_of(f"messages[{index}]", message, notes) for index, message in enumerate(messages)]
    return conversation(said, notes)


def turn_of(where: str, message: Any, notes: Counter[str]) -> Turn:
    """One message of OpenAI's; raises RowError for what is at `where`."""
    if not isinstance(message, dict):
        raise RowError(where, "not an object", 'Write {"role": …, "content": …}.')
    said = message.get("role")
    role = _ROLES.get(said) if isinstance(said, str) else None
    if role is None:
        raise RowError(f"{where}.role", "not a known role", "Use system, user, assistant or tool.")
    weight = _weight(where, message, role)
    content = _content(where, message.get("content"))
    calls = message.get("tool_calls")
    if calls is not None and role == "assistant":
        content = "\n".join(part for part in (content, *_calls(where, calls)) if part)
        notes["tool calls were written into the assistant's text"] += 1
    elif content is None:
        raise RowError(f"{where}.content", "no content", "Write the text; only tool calls may stand without.")
    if said in ("tool", "function"):
        content = result_text(content)
        notes["tool results were written as user messages"] += 1
    return Turn(role, content or "", weight)


def _weight(where: str, message: dict[str, Any], role: str) -> int | None:
    if role != "assistant":
        if message.get("weight") is not None:
            raise RowError(
                f"{where}.weight", "a weight on a message that is not the assistant's", "Leave it out."
            )
        return None
    weight = message.get("weight", 1)
    if type(weight) is not int or weight not in (0, 1):
        raise RowError(
            f"{where}.weight", "not 0 or 1", "Use the number 1 to train this message, 0 to skip it."
        )
    return weight


def _content(where: str, content: Any) -> str | None:
    """A string, or text parts joined; None for null."""
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_part(f"{where}.content[{index}]", part) for index, part in enumerate(content))
    raise RowError(
        f"{where}.content", "not text", 'Write a string, or parts such as {"type": "text", "text": "…"}.'
    )


def _part(where: str, part: Any) -> str:
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    raise RowError(where, "not a text part", "Only text can be trained on; leave images and sounds out.")


def _calls(where: str, calls: Any) -> list[str]:
    """Each call as text, arguments as an object whether they came as one or as a string of JSON."""
    if not isinstance(calls, list):
        raise RowError(f"{where}.tool_calls", "not a list", "Write a list of tool calls, or leave it out.")
    return [_call(f"{where}.tool_calls[{index}]", call) for index, call in enumerate(calls)]


def _call(where: str, call: Any) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise RowError(
            where, "not a function call", 'Write {"type": "function", "function": {"name", "arguments"}}.'
        )
    return call_text(f"{where}.function", function["name"], function.get("arguments", {}))
