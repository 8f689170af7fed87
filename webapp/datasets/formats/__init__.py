"""The formats of uploads, one module each. A module is a format: add it to FORMATS and it is recognised by its content.

Formats of whole files have NAME, `fits(head)` and `conversations(upload, asked, findings)`. Those that are known by
places in a JSON document have SIGNS, the sets of places that tell it. Formats of rows (one JSON object a conversation)
have NAME, KEYS, `fits(row)` and `parse(row)`; they are listed in `rows.py` and share its reader.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Protocol

from webapp.datasets.conversation import Conversation
from webapp.datasets.faults import Bad, FileError
from webapp.datasets.findings import Findings
from webapp.datasets.formats import (
    chatgpt,
    claude,
    discord,
    messenger,
    notes,
    signal_text,
    slack,
    telegram,
    whatsapp,
)
from webapp.datasets.formats.rows import ROW_FORMATS, Rows, Unknown
from webapp.datasets.head import Head
from webapp.datasets.mistaken import (
    html_export,
    is_html,
    is_markup,
    magic_advice,
    office_document,
    package_kind,
)
from webapp.datasets.scan import Pattern
from webapp.datasets.unknown_chat import chat_form_unknown, looks_like_chat
from webapp.datasets.upload import Asked, Member, Other, Upload, is_unmarked_wide


class Format(Protocol):
    NAME: str

    def fits(self, head: Head) -> bool:
        """Whether a file that begins like this is of the format."""

    def conversations(self, upload: Upload, asked: Asked, findings: Findings) -> Iterator[Conversation | Bad]:
        """All of the upload's, and what is bad in it, in the upload's order; raises FileError."""


#: The first that fits is it, so the stricter ones come first.
FORMATS: tuple[Format, ...] = (
    signal_text,
    whatsapp,
    telegram,
    discord,
    messenger,
    slack,
    chatgpt,
    claude,
    *(Rows(form) for form in ROW_FORMATS),
    notes,
)
#: Why a file has no format.
_PAGE = "a page (HTML)"
_CHAT = "like a chat, in a form that is not known"
_SIGNS: tuple[frozenset[Pattern], ...] = tuple(
    sign for form in FORMATS for sign in getattr(form, "SIGNS", ())
)


def recognise(upload: Upload) -> tuple[Format, Upload]:
    """The upload's format, and its files parted into those of that format and the others; raises FileError."""
    told = [_told(member) for member in upload.members]
    for form in FORMATS:
        fitting = tuple(member for member, its in zip(upload.members, told, strict=True) if its is form)
        if not fitting:
            continue
        if form is notes and _PAGE in told:
            # Its scripts and style sheets are text, and nothing to learn from.
            raise html_export(beside=" If you mean the texts beside the page, upload them without it.")
        others = tuple(
            Other(member, its if isinstance(its, str) else f"of the format {its.NAME}")
            for member, its in zip(upload.members, told, strict=True)
            if its is not form
        )
        return form, Upload(fitting, others)
    if _CHAT in told:
        raise chat_form_unknown()
    if upload.members and upload.members[0].entry is None:
        return Unknown(), upload
    if _PAGE in told:
        raise html_export()
    within = ", ".join(f"{count:,} {reason}" for reason, count in Counter(map(str, told)).most_common(3))
    raise FileError(
        "This is a ZIP archive with nothing in it that is known: a chat as its app exports it, JSON Lines, or plain "
        f"text. Upload the text file inside it. Its files: {within or 'none'}."
    )


def _told(member: Member) -> Format | str:
    """Its format, or in words why it has none; raises FileError for a file that makes its archive a document."""
    head = Head(member, _SIGNS)
    if member.entry is not None:
        if kind := package_kind(member.name, head.start):
            raise office_document(kind)
        if reason := _unread(head.start):
            return reason
    form = next((form for form in FORMATS if form.fits(head)), None)
    if form is notes and not notes.is_table(head.text) and looks_like_chat(head.text):
        return _CHAT
    return form or "in no form that is known"


def _unread(start: bytes) -> str | None:
    """Why a file of an archive holds nothing to read."""
    if not start.strip():
        return "empty"
    if advice := magic_advice(start):
        return f"not text: {advice}"
    if b"\x00" in start:
        return "UTF-16 without a mark: save it as UTF-8" if is_unmarked_wide(start) else "not text"
    if is_markup(start):
        return _PAGE if is_html(start) else "XML"
    return None
