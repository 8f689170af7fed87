"""Slack's ZIP: a folder a channel, a file a day of [{"type", "user", "text", "ts", "thread_ts"?}], and users.json."""

import html
import re
from collections.abc import Iterator
from functools import partial

from webapp.datasets.chats import conversations_of
from webapp.datasets.conversation import Conversation
from webapp.datasets.documents import Found, objects, read
from webapp.datasets.faults import Bad, shown
from webapp.datasets.findings import Findings
from webapp.datasets.head import Head
from webapp.datasets.lines import MAX_LINE_BYTES
from webapp.datasets.mojibake import repaired
from webapp.datasets.moments import unix_seconds
from webapp.datasets.scan import ANY
from webapp.datasets.transcript import Message
from webapp.datasets.upload import Asked, Upload

NAME = "slack"

SIGNS = (frozenset({(ANY, "ts"), (ANY, "text"), (ANY, "type")}),)
_USER_SIGN = frozenset({(ANY, "id"), (ANY, "profile", "real_name")})
#: Other subtypes are Slack's own words, or those of bots.
_SPOKEN = (None, "thread_broadcast", "me_message")
_MAX_USERS = 20_000
#: <@U1>, <#C1|general>, <!here>, <https://…|what it is called>
_MARK = re.compile(r"<([@#!]?)([^<>|\n]{1,500})(?:\|([^<>\n]{0,500}))?>")


def fits(head: Head) -> bool:
    return head.has_any(SIGNS)


def conversations(upload: Upload, asked: Asked, findings: Findings) -> Iterator[Conversation | Bad]:
    yield from conversations_of(_messages(upload, findings), asked, findings)


def _messages(upload: Upload, findings: Findings) -> Iterator[Message | Bad]:
    names = _names(upload, findings)
    make = partial(_message, names=names, findings=findings)
    for member in upload.members:
        yield from read(member, [(ANY,)], MAX_LINE_BYTES, make)


def _message(found: Found, *, names: dict[str, str], findings: Findings) -> Message | None:
    row = found.row
    if row.get("type", "message") != "message" or row.get("subtype") not in _SPOKEN or row.get("bot_id"):
        findings.notes["service messages and messages by bots were left out"] += 1
        return None
    user, text = row.get("user"), row.get("text")
    if not isinstance(text, str) or not text.strip() or not isinstance(user, str):
        findings.notes["messages without text were left out"] += 1
        return None
    seconds = unix_seconds(row.get("ts"), "ts")
    thread = row.get("thread_ts") if isinstance(row.get("thread_ts"), str) else None
    # A thread runs beside its channel: it is a chat of its own.
    return Message(
        (found.member.folder, thread), seconds, names.get(user, shown(user)), _plain(text, names), found.line
    )


def _plain(text: str, names: dict[str, str]) -> str:
    def said(mark: re.Match[str]) -> str:
        kind, what, label = mark[1], mark[2], mark[3]
        if kind == "@":
            return f"@{names.get(what, label or what)}"
        return kind.replace("!", "@") + (label or what.partition("^")[0])

    return html.unescape(_MARK.sub(said, text)).strip()


def _names(upload: Upload, findings: Findings) -> dict[str, str]:
    """The names behind the ids, from the list of users; of two people with one name, the second keeps the id too."""
    names: dict[str, str] = {}
    for member in (other.member for other in upload.others):
        if not Head(member, [_USER_SIGN]).has_any([_USER_SIGN]):
            continue
        findings.used.add(member.entry)
        for found in objects(member, [(ANY,)], MAX_LINE_BYTES):
            profile = found.row.get("profile") if isinstance(found, Found) else None
            if isinstance(found, Bad) or not isinstance(profile, dict) or len(names) == _MAX_USERS:
                continue
            user, name = found.row.get("id"), profile.get("display_name") or profile.get("real_name")
            if isinstance(user, str) and isinstance(name, str) and name.strip():
                name = repaired(name)
                names[user] = shown(name) if shown(name) not in names.values() else shown(f"{name} ({user})")
    return names
