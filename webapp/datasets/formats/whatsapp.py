"""WhatsApp's text export: `[d/m/y, h:m:s] Name: text` (iOS) or `d/m/y, h:m - Name: text` (Android), in any language."""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from webapp.datasets.chats import conversations_of
from webapp.datasets.conversation import Conversation
from webapp.datasets.faults import Bad, RowError, shown
from webapp.datasets.findings import Findings
from webapp.datasets.formats.whatsapp_dates import Orders, Stamp, stamp
from webapp.datasets.formats.whatsapp_words import is_notice, without_edit_mark
from webapp.datasets.head import Head
from webapp.datasets.headed_text import headed
from webapp.datasets.transcript import Message
from webapp.datasets.upload import Asked, Member, Upload

NAME = "whatsapp"

#: Marks that say which way text runs. They stand around names, dates and notices, and are no part of them.
_BIDI = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
#: What iOS writes before its own words, and nobody types.
_OWN_WORDS = "\u200e"
_SPACES = re.compile("[\u00a0\u202f\u2009]")
_HEADER = re.compile(r"(?:\[([^\[\]]{8,40})\]|([^\[\]]{8,40}?) -) (.*)", re.DOTALL)
_NAME = re.compile(r"([^\n]{1,100}?) ?:(?: |$|(?=\S))")
_SIGN_LINES = 20
#: So many messages settle in which order the dates are written.
_SETTLING = 20_000

Header = tuple[Stamp, str, bool]


def fits(head: Head) -> bool:
    """Whether a message's header is among the first lines."""
    return any(_header(line) for line in head.text[:_SIGN_LINES])


def conversations(upload: Upload, asked: Asked, findings: Findings) -> Iterator[Conversation | Bad]:
    yield from conversations_of(_messages(upload, findings), asked, findings)


def _messages(upload: Upload, findings: Findings) -> Iterator[Message | Bad]:
    for member in upload.members:
        orders = Orders()
        for each in islice(headed(member, _header, Counter()), _SETTLING):
            if not isinstance(each, Bad):
                orders.see(each.header[0])
        yield from _of(member, orders, findings)


def _of(member: Member, orders: Orders, findings: Findings) -> Iterator[Message | Bad]:
    order = orders.best()
    for each in headed(member, _header, findings.notes):
        if isinstance(each, Bad):
            yield each
            continue
        when, speaker, own_words = each.header
        text = without_edit_mark(_SPACES.sub(" ", _BIDI.sub("", each.text))).strip()
        if not speaker or own_words:
            findings.notes["lines of WhatsApp itself were left out"] += 1
        elif not text or is_notice(text):
            findings.notes["messages of pictures, sounds and other media, or taken back, were left out"] += 1
        elif (seconds := when.seconds(order)) is None:
            fault = RowError("line", "no such day", "Export the chat again, or mend the date.")
            yield Bad(each.line, fault, member.entry)
        else:
            yield Message(member.entry, seconds, speaker, text, each.line)


def _header(line: str) -> tuple[Header, str] | None:
    """((when, who, whether the words are WhatsApp's), text); nobody for lines without a name."""
    # Most lines of a long message are told apart here: a header has a digit among its first characters.
    if not any(char.isdigit() for char in line[:6]):
        return None
    found = _HEADER.match(_SPACES.sub(" ", line.lstrip("\u200e\u200f\ufeff")))
    if found is None:
        return None
    when = stamp(_BIDI.sub("", found[1] or found[2]).strip())
    if when is None:
        return None
    rest = found[3]
    name = _NAME.match(rest)
    if name is None or _inside_quotes(name[1]):
        return (when, "", False), rest
    text = rest[name.end() :]
    return (when, _speaker(name[1]), text.startswith(_OWN_WORDS)), text


def _speaker(name: str) -> str:
    """`~` marks people who are not in the phone's contacts."""
    return shown(_BIDI.sub("", name).strip().removeprefix("~").strip())


def _inside_quotes(name: str) -> bool:
    """Whether the colon stands in a quotation, as in: Ann changed the subject from "x: y" to "z"."""
    return bool(name.count('"') % 2 or name.count("“") > name.count("”") or name.count("«") > name.count("»"))
