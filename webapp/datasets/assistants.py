"""A person's talks with an assistant (ChatGPT, Claude) as conversations, in the voice of either."""

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

from webapp.datasets.conversation import Conversation, Turn, conversation
from webapp.datasets.faults import FileError
from webapp.datasets.findings import Findings
from webapp.datasets.upload import Voice

#: Of each voice, from a talk each, and so many characters of a message.
_EXAMPLES, _SHOWN = 3, 160


_VOICES: dict[bool, Voice] = {True: "me", False: "assistant"}


@dataclass(frozen=True)
class Said:
    by_me: bool
    text: str


@dataclass
class Talks:
    """Counts both sides and keeps examples of each, whichever is trained, so that the report can show what the other
    choice would give. Without a voice nothing is trained, and the report asks."""

    voice: Voice | None
    findings: Findings
    _talks: int = 0
    _messages: Counter[bool] = field(default_factory=Counter)
    _characters: Counter[bool] = field(default_factory=Counter)

    def conversation(self, said: list[Said], line: int) -> Conversation | None:
        """None without a voice, or if one side says nothing that the other answers; raises RowError. `line`: where the
        talk begins."""
        said = [each for each in said if each.text.strip()]
        for each in said:
            self._messages[each.by_me] += 1
            self._characters[each.by_me] += len(each.text)
        self._talks += 1
        self._show(said)
        if self.voice is None and said:
            return None
        target_is_me = self.voice == "me"
        while said and said[0].by_me == target_is_me:
            said = said[1:]
            self.findings.notes["first messages that answer nothing were left out"] += 1
        if not any(each.by_me == target_is_me for each in said):
            self.findings.notes["conversations without an answer were left out"] += 1
            return None
        turns = [
            Turn("assistant", each.text, 1) if each.by_me == target_is_me else Turn("user", each.text)
            for each in said
        ]
        talk = conversation(turns)
        talk.source, talk.line = str(self._talks), line
        return talk

    def close(self) -> None:
        """Say what there was, in three facts, and whose voice was chosen; raises FileError if nobody said."""
        chosen = {"me": "you, as you write", "assistant": "the assistant, as it answers", None: None}[
            self.voice
        ]
        told = f" voice={self.voice}: the model learns to be {chosen}." if chosen else ""
        self.findings.voice = self.voice
        self.findings.facts += [
            f"{self._talks:,} conversations with an assistant.{told}",
            f"voice=assistant: {self._of(False)}",
            f"voice=me: {self._of(True)}",
        ]
        if self.voice is None and self._messages:
            raise FileError(
                "Is the model to write like you, or to answer like that assistant? Upload again with the form field "
                "'voice' set to 'me' or 'assistant'. The report's 'voices' has three examples of each.",
                code="voice_needed",
            )

    def _show(self, said: list[Said]) -> None:
        """Keep the first answer of each side as an example of its voice."""
        for by_me, voice in _VOICES.items():
            shown = self.findings.voices.setdefault(voice, [])
            if len(shown) < _EXAMPLES:
                shown += [
                    {"before": _short(before.text), "answer": _short(answer.text)}
                    for before, answer in pairwise(said)
                    if answer.by_me == by_me and before.by_me != by_me
                ][:1]

    def _of(self, by_me: bool) -> str:
        messages = self._messages[by_me]
        mean = round(self._characters[by_me] / messages) if messages else 0
        return f"{messages:,} messages, {mean:,} characters each on average."


def _short(text: str) -> str:
    """On one line, and without what no database stores."""
    words = " ".join(text[: 4 * _SHOWN].replace("\0", "").encode("utf-8", "replace").decode().split())
    return words if len(words) <= _SHOWN else f"{words[: _SHOWN - 1]}…"
