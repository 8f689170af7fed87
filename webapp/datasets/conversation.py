"""A conversation as trainers read it, and the rules that every format's rows have to meet."""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, NoReturn

from webapp.datasets.faults import RowError
from webapp.datasets.mojibake import repair

MAX_MESSAGES = 2_000
#: Between two turns of one role that become one.
_JOINT = "\n\n"
#: Half of a character, which no UTF-8 can hold.
_HALF = re.compile("[\ud800-\udfff]")


@dataclass
class Turn:
    """`weight` 1: trained; None for turns that are not the assistant's."""

    role: str
    content: str
    weight: int | None = None

    def as_json(self) -> dict[str, Any]:
        told = {"role": self.role, "content": self.content}
        return told if self.weight is None else {**told, "weight": self.weight}


@dataclass
class Conversation:
    turns: list[Turn]
    #: What was changed, counted by its sentence: said in the report, never silent.
    notes: Counter[str]
    #: What of the upload it comes from: a row's line, a chat's number, a section of a text.
    source: str = ""
    #: 1, 2, … for the conversations of one chat, parted by silences, and the passages of a section; 0 for rows.
    part: int = 0
    #: 1, 2, … for the pieces of a conversation that was cut because it is long; 0 if it is whole.
    piece: int = 0
    #: Where it begins, in the upload or in its entry of an archive.
    line: int = 0
    #: Of a preference pair: the answer that its last turn is preferred to.
    rejected: Turn | None = None

    @property
    def id(self) -> str:
        return ".".join([self.source, *(str(number) for number in (self.part, self.piece) if number)])

    @property
    def said(self) -> list[Turn]:
        """All that it holds, the rejected answer of a pair too."""
        return self.turns if self.rejected is None else [*self.turns, self.rejected]

    @property
    def examples(self) -> int:
        """Trained assistant turns; a pair is one."""
        return sum(turn.weight == 1 for turn in self.turns)


def conversation(turns: list[Turn], notes: Counter[str] | None = None) -> Conversation:
    """Check and tidy the turns of one row; raises RowError. `messages` is what the row's author calls them."""
    notes = Counter() if notes is None else notes
    if len(turns) > MAX_MESSAGES:
        raise RowError(
            "messages", f"more than {MAX_MESSAGES} messages", "Split the conversation into several rows."
        )
    merged: list[Turn] = []
    for index, turn in enumerate(turns):
        if turn.role == "system" and not turn.content.strip():
            notes["empty system messages were left out"] += 1
            continue
        turn.content = repair(turn.content, notes)
        if not turn.content.strip():
            _empty(index, turn)
        if _HALF.search(turn.content):
            _bad_text(index)
        if merged and merged[-1].role == turn.role:
            _merge(merged[-1], turn, index)
            notes[f"consecutive {turn.role} messages were merged into one"] += 1
        else:
            merged.append(turn)
    _check_order(merged)
    if merged[-1].role != "assistant":
        merged.pop()
        notes["a last user message without an answer was left out"] += 1
    result = Conversation(merged, notes)
    if result.examples == 0:
        raise RowError(
            "messages", "no assistant message is trained", "Add an assistant message, or give one weight 1."
        )
    return result


def _check_order(turns: list[Turn]) -> None:
    if any(turn.role == "system" for turn in turns[1:]):
        raise RowError("messages", "a system message after the start", "Put the system message first.")
    spoken = [turn for turn in turns if turn.role != "system"]
    if not spoken or not any(turn.role == "assistant" for turn in spoken):
        raise RowError("messages", "no assistant message", "Add what the assistant should answer.")
    if spoken[0].role == "assistant":
        raise RowError(
            "messages", "the conversation begins with the assistant", "Begin with what the user says."
        )


def _merge(before: Turn, turn: Turn, index: int) -> None:
    if before.weight != turn.weight:
        raise RowError(
            f"messages[{index}].weight",
            "consecutive assistant messages with different weights",
            "Give both the same weight, or put the user's message between them.",
        )
    before.content += _JOINT + turn.content


def _empty(index: int, turn: Turn) -> NoReturn:
    raise RowError(
        f"messages[{index}].content",
        f"an empty {turn.role} message",
        "Write the text, or leave the message out.",
    )


def _bad_text(index: int) -> NoReturn:
    raise RowError(
        f"messages[{index}].content",
        "half of a character (an unpaired surrogate such as \\ud83d)",
        "Write emoji as UTF-8 or as both halves of the escape.",
    )
