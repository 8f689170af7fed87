"""People's chats as conversations: 'me' is the assistant, bursts are turns, and a long silence is an end."""

import unicodedata
from collections.abc import Iterable, Iterator

from webapp.datasets.conversation import Conversation, Turn, conversation
from webapp.datasets.faults import Bad, FileError, RowError
from webapp.datasets.findings import Findings
from webapp.datasets.transcript import Message, Transcript
from webapp.datasets.upload import Asked

#: After so long nobody answers what was said: people come back with something new.
SILENCE_SECONDS = 6 * 3600
#: A piece of a chat that goes on and on, about 1,200 tokens: each answer is trained with the whole piece before it.
PIECE_CHARACTERS = 4_000
#: Where a piece ends even if nobody answered.
_LONGEST_CHARACTERS = 4 * PIECE_CHARACTERS


def conversations_of(
    messages: Iterable[Message | Bad], asked: Asked, findings: Findings
) -> Iterator[Conversation | Bad]:
    """Pieces of all the chats in which 'me' writes. Raises FileError if it is not clear who that is."""
    transcript = Transcript()
    for message in messages:
        if isinstance(message, Bad):
            yield message
        else:
            transcript.add(message)
    findings.speakers = transcript.speakers
    me = _me(asked.me, transcript)
    findings.facts += [
        f"{len(transcript):,} messages by {len(transcript.speakers):,} people in {transcript.chats:,} chats.",
        f"{transcript.speakers[me]:,} of the messages are by 'me': they are what is trained.",
    ]
    for number, people, said in transcript.of_chats(me):
        yield from _Chat(number, me, people > 2, findings).pieces(said)


def _me(asked: str | None, transcript: Transcript) -> str:
    speakers = transcript.speakers
    if not speakers:
        raise FileError("This export has no message with text in it.", code="no_messages")
    if len(speakers) == 1:
        raise FileError(
            "Only one person writes in this export, so there is nothing to answer. Export a chat of two or more.",
            code="one_speaker",
        )
    if asked is None:
        raise FileError(
            "Who of the speakers is the one to train? Upload again with the form field 'me' set to one of the names "
            "in the report's 'speakers', exactly as it is written there.",
            code="speaker_needed",
        )
    alike = [name for name in speakers if _plain(name) == _plain(asked)]
    if asked not in speakers and len(alike) != 1:
        raise FileError(
            "'me' names nobody who writes in this export. Upload again with one of the names in the report's "
            "'speakers', exactly as it is written there.",
            code="speaker_unknown",
        )
    return asked if asked in speakers else alike[0]


def _plain(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold().strip()


class _Chat:
    """One chat, cut as it is read: no more than a piece of it is in memory."""

    def __init__(self, number: int, me: str, group: bool, findings: Findings) -> None:
        self._source = str(number)
        self._me = me
        self._group = group
        self._findings = findings
        self._part, self._piece = 1, 0
        self._clear()

    def _clear(self) -> None:
        self._turns: list[tuple[str, list[str]]] = []
        self._size = 0
        self._line = 0
        self._last_speaker = ""

    def pieces(self, said: Iterator[Message]) -> Iterator[Conversation | Bad]:
        before: float | None = None
        for message in said:
            if before is not None and message.seconds - before > SILENCE_SECONDS:
                yield from self._fall_silent()
            elif self._is_full(message):
                self._piece += 1
                yield from self._end()
            self._take(message)
            before = message.seconds
        yield from self._fall_silent()

    def _fall_silent(self) -> Iterator[Conversation | Bad]:
        """The end of a conversation, which has only pieces if it was cut before."""
        self._piece += bool(self._piece)
        yield from self._end()
        self._part, self._piece = self._part + 1, 0

    def _is_full(self, message: Message) -> bool:
        answered = bool(self._turns) and self._turns[-1][0] == "assistant" and message.speaker != self._me
        return self._size > (PIECE_CHARACTERS if answered else _LONGEST_CHARACTERS)

    def _take(self, message: Message) -> None:
        role = "assistant" if message.speaker == self._me else "user"
        text = message.text
        if self._group and role == "user" and message.speaker != self._last_speaker:
            text = f"{message.speaker}: {text}"
        if self._turns and self._turns[-1][0] == role:
            self._turns[-1][1].append(text)
            self._findings.notes["messages in a row by one side were joined into one turn"] += 1
        else:
            self._turns.append((role, [text]))
        self._last_speaker = message.speaker
        self._size += len(text)
        self._line = self._line or message.line

    def _end(self) -> Iterator[Conversation | Bad]:
        turns, line = self._turns, self._line
        self._clear()
        if len({role for role, _ in turns}) < 2:
            if turns:
                self._findings.notes["stretches in which only one side wrote were left out"] += 1
            return
        if turns[0][0] == "assistant":
            turns = turns[1:]
            self._findings.notes[
                "first messages by 'me' after a silence answer nothing and were left out"
            ] += 1
            if len(turns) < 2:
                return
        try:
            talk = conversation(
                [Turn(role, "\n".join(texts), 1 if role == "assistant" else None) for role, texts in turns]
            )
        except RowError as error:
            yield Bad(line, error)
            return
        talk.source, talk.part, talk.piece, talk.line = self._source, self._part, self._piece, line
        yield talk
