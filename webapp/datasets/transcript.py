"""The messages of people's chats, on disk: a million of them cost about 40 MB of memory, whatever they say."""

import json
import tempfile
from array import array
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from webapp.datasets.faults import FileError

MAX_MESSAGES = 1_000_000
MAX_SPEAKERS = 20_000
#: The year 2514: what is later or before 1970 is no time of a message.
_LAST_SECOND = 2**34
_SPOOL_BYTES = 4_000_000


@dataclass(frozen=True, slots=True)
class Message:
    """`chat`: which of the upload's chats; `seconds`: when, since any fixed time."""

    chat: Hashable
    seconds: float
    speaker: str
    text: str
    line: int


class Transcript:
    """Messages in any order in; each chat's, oldest first, out."""

    def __init__(self) -> None:
        self.speakers: Counter[str] = Counter()
        self._chats: dict[Hashable, int] = {}
        self._names: dict[str, int] = {}
        #: Who speaks in each chat: pairs of numbers.
        self._present: set[tuple[int, int]] = set()
        self._file = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115 (goes with the transcript)
        self._chat, self._millis, self._offset = array("l"), array("q"), array("q")
        self._end = 0
        self._backward = 0

    def __len__(self) -> int:
        return len(self._chat)

    @property
    def chats(self) -> int:
        return len(self._chats)

    def add(self, message: Message) -> None:
        """Raises FileError for more messages or people than chats have."""
        if len(self) == MAX_MESSAGES:
            raise FileError(f"More than {MAX_MESSAGES:,} messages. Upload the chats in parts.")
        chat = self._chats.setdefault(message.chat, len(self._chats))
        name = self._names.setdefault(message.speaker, len(self._names))
        if len(self._names) > MAX_SPEAKERS:
            raise FileError(
                f"More than {MAX_SPEAKERS:,} people write in this file. Upload single chats of it."
            )
        self.speakers[message.speaker] += 1
        self._present.add((chat, name))
        millis = int(min(max(message.seconds, 0), _LAST_SECOND) * 1000)
        if self._millis and self._chat[-1] == chat and millis < self._millis[-1]:
            self._backward += 1
        self._chat.append(chat)
        self._millis.append(millis)
        self._offset.append(self._end)
        self._end += self._file.write(
            json.dumps([message.speaker, message.text, message.line]).encode() + b"\n"
        )

    def of_chats(self, speaker: str) -> Iterator[tuple[int, int, Iterator[Message]]]:
        """(number from 1, people, messages) of each chat in which `speaker` writes; read each before the next."""
        people = Counter(chat for chat, _ in self._present)
        theirs = {chat for chat, name in self._present if name == self._names[speaker]}
        order = self._order()
        start = 0
        while start < len(order):
            chat, end = self._chat[order[start]], start + 1
            while end < len(order) and self._chat[order[end]] == chat:
                end += 1
            if chat in theirs:
                yield chat + 1, people[chat], self._read(order, start, end)
            start = end

    def _order(self) -> "array[int]":
        """By chat and time. Of one moment, as the file has them, or the other way round if it has the newest first."""
        indices = range(len(self))
        if self._backward * 2 > len(self):
            indices = indices[::-1]
        # Milliseconds fit 45 bits and chats the rest: one number sorts faster than two.
        return array("q", sorted(indices, key=lambda index: (self._chat[index] << 45) + self._millis[index]))

    def _read(self, order: "array[int]", start: int, end: int) -> Iterator[Message]:
        for position in range(start, end):
            index = order[position]
            self._file.seek(self._offset[index])
            speaker, text, line = json.loads(self._file.readline())
            yield Message(self._chat[index], self._millis[index] / 1000, speaker, text, line)
