"""A person's talks with an assistant (ChatGPT, Claude) as conversations, in the voice of either."""

from collections import Counter
from dataclasses import dataclass, field

from webapp.datasets.conversation import Conversation, Turn, conversation
from webapp.datasets.findings import Findings
from webapp.datasets.upload import Voice


@dataclass(frozen=True)
class Said:
    by_me: bool
    text: str


@dataclass
class Talks:
    """Counts both sides, whichever is trained, so that the report can say what the other choice would give."""

    voice: Voice
    findings: Findings
    _talks: int = 0
    _messages: Counter[bool] = field(default_factory=Counter)
    _characters: Counter[bool] = field(default_factory=Counter)

    def conversation(self, said: list[Said], line: int) -> Conversation | None:
        """None if one side says nothing that the other answers; raises RowError. `line`: where the talk begins."""
        said = [each for each in said if each.text.strip()]
        for each in said:
            self._messages[each.by_me] += 1
            self._characters[each.by_me] += len(each.text)
        self._talks += 1
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
        """Say what there was, in three facts, and whose voice was chosen."""
        self.findings.voice = self.voice
        chosen = "you, as you write" if self.voice == "me" else "the assistant, as it answers"
        self.findings.facts += [
            f"{self._talks:,} conversations with an assistant. voice={self.voice}: the model learns to be {chosen}.",
            f"voice=assistant: {self._of(False)}",
            f"voice=me: {self._of(True)}",
        ]

    def _of(self, by_me: bool) -> str:
        messages = self._messages[by_me]
        mean = round(self._characters[by_me] / messages) if messages else 0
        return f"{messages:,} messages, {mean:,} characters each on average."
