"""OpenAI preference pairs (DPO): {"input": {"messages"}, "preferred_output", "non_preferred_output"} a line."""

from collections import Counter
from dataclasses import replace
from typing import Any

from webapp.datasets.conversation import Conversation, Turn, conversation
from webapp.datasets.faults import RowError
from webapp.datasets.formats.openai_chat import turn_of
from webapp.datasets.row_keys import keys_check

NAME = "preferences"
KEYS = (
    '{"input": {"messages": […]}, "preferred_output": [{"role": "assistant", "content": "…"}], '
    '"non_preferred_output": [{"role": "assistant", "content": "…"}]}'
)

_PREFERRED, _REJECTED = "preferred_output", "non_preferred_output"
_KNOWN = {"input", _PREFERRED, _REJECTED, "id"}
_KNOWN_OF_INPUT = {"messages", "tools", "parallel_tool_calls"}
_RIVALS = {"messages", "text", "prompt", "completion", "conversations", "instruction", "output"}


def fits(row: dict[str, Any]) -> bool:
    return _PREFERRED in row or _REJECTED in row


def parse(row: dict[str, Any]) -> Conversation:
    """The conversation that ends with the preferred answer, and the other one beside it."""
    notes = keys_check(row, known=_KNOWN, rivals=_RIVALS, own=_PREFERRED)
    asked = _asked(row.get("input"), notes)
    answers = {key: _answer(row, key, notes) for key in (_PREFERRED, _REJECTED)}
    pair = _answered(asked, answers, _PREFERRED, notes)
    pair.rejected = replace(_answered(asked, answers, _REJECTED, Counter()).turns[-1], weight=None)
    if pair.rejected.content.strip() == pair.turns[-1].content.strip():
        raise RowError(
            _REJECTED, "the same as the preferred output", "Write two answers of which one is better."
        )
    return pair


def _asked(asked: Any, notes: Counter[str]) -> list[Turn]:
    """What both outputs answer: its assistant's turns are context."""
    messages = asked.get("messages") if isinstance(asked, dict) else None
    if not isinstance(messages, list) or not messages:
        raise RowError(
            "input.messages",
            "not a list of messages",
            'Write "input": {"messages": [{"role": …, "content": …}]}.',
        )
    notes += keys_check(asked, known=_KNOWN_OF_INPUT, rivals=set(), own="messages")
    if asked.get("tools"):
        notes["tool definitions are not part of training yet and were left out"] += 1
    turns = [turn_of(f"input.messages[{index}]", message, notes) for index, message in enumerate(messages)]
    if turns[-1].role != "user":
        raise RowError(
            "input.messages",
            "the last message is not the user's",
            "End the input with what both outputs answer; an answer belongs into the outputs.",
        )
    return [replace(turn, weight=None if turn.weight is None else 0) for turn in turns]


def _answer(row: dict[str, Any], key: str, notes: Counter[str]) -> Turn:
    messages = row.get(key)
    if not isinstance(messages, list) or len(messages) != 1:
        raise RowError(
            key,
            "not a list of one message",
            f'Write "{key}": [{{"role": "assistant", "content": "…"}}].',
        )
    turn = turn_of(f"{key}[0]", messages[0], notes)
    if turn.role != "assistant":
        raise RowError(f"{key}[0].role", "not the assistant's", "An output is what the assistant says.")
    return replace(turn, weight=1)


def _answered(asked: list[Turn], answers: dict[str, Turn], key: str, notes: Counter[str]) -> Conversation:
    try:
        return conversation([replace(turn) for turn in (*asked, answers[key])], notes)
    except RowError as error:
        # It counts messages through, and those of the row are in two places.
        last = f"messages[{len(asked)}]"
        within = error.field.removeprefix(last)
        field = f"{key}[0]{within}" if error.field.startswith(last) else f"input.{error.field}"
        raise RowError(field, error.reason, error.fix) from None
