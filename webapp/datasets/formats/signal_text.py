"""Signal as text, as command-line exporters write it: `[2019-12-24, 12:23] Name: text`, and lines that go on."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from webapp.datasets.chats import conversations_of
from webapp.datasets.conversation import Conversation
from webapp.datasets.faults import Bad, RowError, shown
from webapp.datasets.findings import Findings
from webapp.datasets.head import Head
from webapp.datasets.headed_text import headed
from webapp.datasets.transcript import Message
from webapp.datasets.upload import Asked, Upload

NAME = "signal"

#: Without seconds: that is how it differs from WhatsApp on iPhones that write the year first.
_HEADER = re.compile(r"\[(\d{4}-\d\d-\d\d),? (\d\d:\d\d)\] ([^\n:]{1,100}): ?(.*)", re.DOTALL)
#: An attachment alone, as Markdown.
_MEDIA = re.compile(r"(?:!?\[[^\]\n]*\]\([^)\n]*\)\s*)+")
_SIGN_LINES = 20


def fits(head: Head) -> bool:
    return any(_HEADER.match(line) for line in head.text[:_SIGN_LINES])


def conversations(upload: Upload, asked: Asked, findings: Findings) -> Iterator[Conversation | Bad]:
    yield from conversations_of(_messages(upload, findings), asked, findings)


def _messages(upload: Upload, findings: Findings) -> Iterator[Message | Bad]:
    for member in upload.members:
        for each in headed(member, _header, findings.notes):
            if isinstance(each, Bad):
                yield each
                continue
            when, speaker = each.header
            if not each.text or _MEDIA.fullmatch(each.text):
                findings.notes["messages without text were left out"] += 1
                continue
            try:
                seconds = datetime.fromisoformat(when).replace(tzinfo=UTC).timestamp()
            except ValueError:
                fault = RowError("line", "no such day", "Export the chat again, or mend the date.")
                yield Bad(each.line, fault, member.entry)
                continue
            yield Message(member.entry, seconds, speaker, each.text, each.line)


def _header(line: str) -> tuple[tuple[str, str], str] | None:
    found = _HEADER.match(line)
    return ((f"{found[1]} {found[2]}", shown(found[3].strip())), found[4]) if found else None
