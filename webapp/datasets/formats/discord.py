"""Discord, by DiscordChatExporter: {"guild", "channel", "messages": [{"type", "timestamp", "content", "author"}]}."""

from collections.abc import Iterator
from functools import partial

from webapp.datasets.chats import conversations_of
from webapp.datasets.conversation import Conversation
from webapp.datasets.documents import Found, read
from webapp.datasets.faults import Bad, RowError, shown
from webapp.datasets.findings import Findings
from webapp.datasets.head import Head
from webapp.datasets.lines import MAX_LINE_BYTES
from webapp.datasets.mojibake import repaired
from webapp.datasets.moments import iso_seconds
from webapp.datasets.scan import ANY
from webapp.datasets.transcript import Message
from webapp.datasets.upload import Asked, Upload

NAME = "discord"

_MESSAGE = ("messages", ANY)
SIGNS = (frozenset({(*_MESSAGE, "author", "name"), (*_MESSAGE, "timestamp"), (*_MESSAGE, "content")}),)
#: All other types are what Discord itself says: somebody joined, pinned, called.
_SPOKEN = ("Default", "Reply", "ThreadStarterMessage")


def fits(head: Head) -> bool:
    return head.has_any(SIGNS)


def conversations(upload: Upload, asked: Asked, findings: Findings) -> Iterator[Conversation | Bad]:
    yield from conversations_of(_messages(upload, findings), asked, findings)


def _messages(upload: Upload, findings: Findings) -> Iterator[Message | Bad]:
    make = partial(_message, findings=findings)
    for member in upload.members:
        yield from read(member, [_MESSAGE], MAX_LINE_BYTES, make)


def _message(found: Found, findings: Findings) -> Message | None:
    row, author = found.row, found.row.get("author")
    if row.get("type", "Default") not in _SPOKEN:
        findings.notes["service messages were left out"] += 1
        return None
    if not isinstance(author, dict) or not isinstance(author.get("name"), str):
        raise RowError("author.name", "no name", "Upload the export as DiscordChatExporter wrote it.")
    if author.get("isBot"):
        findings.notes["messages by bots were left out"] += 1
        return None
    content = row.get("content")
    if not isinstance(content, str) or not content.strip():
        findings.notes["messages without text were left out"] += 1
        return None
    seconds = iso_seconds(row.get("timestamp"), "timestamp")
    return Message(found.member.entry, seconds, shown(repaired(author["name"])), content.strip(), found.line)
