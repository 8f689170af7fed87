"""Telegram's JSON: one chat {"name", "type", "id", "messages": […]}, or the whole account, {"chats": {"list": […]}}."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from webapp.datasets.chats import conversations_of
from webapp.datasets.conversation import Conversation
from webapp.datasets.documents import Found, read
from webapp.datasets.faults import Bad, RowError, shown
from webapp.datasets.findings import Findings
from webapp.datasets.head import Head
from webapp.datasets.lines import MAX_LINE_BYTES
from webapp.datasets.mojibake import repaired
from webapp.datasets.moments import iso_seconds, unix_seconds
from webapp.datasets.scan import ANY, Pattern
from webapp.datasets.transcript import Message
from webapp.datasets.upload import Asked, Upload

NAME = "telegram"

_CHATS: tuple[Pattern, ...] = (
    ("messages", ANY),
    ("chats", "list", ANY, "messages", ANY),
    ("left_chats", "list", ANY, "messages", ANY),
)
SIGNS = tuple(frozenset({(*place, "from"), (*place, "text")}) for place in _CHATS)


def fits(head: Head) -> bool:
    return head.has_any(SIGNS)


def conversations(upload: Upload, asked: Asked, findings: Findings) -> Iterator[Conversation | Bad]:
    yield from conversations_of(_messages(upload, findings), asked, findings)


def _messages(upload: Upload, findings: Findings) -> Iterator[Message | Bad]:
    make = partial(_message, findings=findings)
    for member in upload.members:
        yield from read(member, _CHATS, MAX_LINE_BYTES, make)


def _message(found: Found, findings: Findings) -> Message | None:
    row = found.row
    if row.get("type", "message") != "message":
        findings.notes["service messages were left out"] += 1
        return None
    if row.get("forwarded_from") is not None:
        findings.notes["forwarded messages were left out: they are others' words"] += 1
        return None
    text = _text(row.get("text")).strip()
    # A deleted account has an id and no name.
    speaker = row.get("from") or row.get("from_id")
    if not text or not isinstance(speaker, str):
        findings.notes["messages without text were left out"] += 1
        return None
    if row.get("date_unixtime") is not None:
        seconds = unix_seconds(row["date_unixtime"], "date_unixtime")
    else:
        seconds = iso_seconds(row.get("date"), "date")
    # The chat is the place without the message's own position.
    return Message(
        (found.member.entry, *found.path[:-1]), seconds, shown(repaired(speaker)), text, found.line
    )


def _text(text: Any) -> str:
    """Plain, or a list of plain pieces and entities (links, bold, mentions), whose texts stand one after another."""
    if isinstance(text, str):
        return text
    if not isinstance(text, list):
        raise RowError("text", "neither text nor a list of pieces", "Upload the export as Telegram wrote it.")
    pieces = [piece.get("text") if isinstance(piece, dict) else piece for piece in text]
    return "".join(piece for piece in pieces if isinstance(piece, str))
