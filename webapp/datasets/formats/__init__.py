"""The formats of uploads, one module each. A module is a format: add it to FORMATS and it is recognised by its content.

Formats of whole files have NAME, `fits(head)` and `conversations(upload, asked, findings)`. Those that are known by
places in a JSON document have SIGNS, the sets of places that tell it. Formats of rows (one JSON object a conversation)
have NAME, KEYS, `fits(row)` and `parse(row)`; they are listed in `rows.py` and share its reader.
"""

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
from webapp.datasets.scan import Pattern
from webapp.datasets.upload import HTML, Asked, Upload, is_html


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
_SIGNS: tuple[frozenset[Pattern], ...] = tuple(
    sign for form in FORMATS for sign in getattr(form, "SIGNS", ())
)


def recognise(upload: Upload) -> tuple[Format, Upload]:
    """The upload's format, and its files parted into those of that format and the others; raises FileError."""
    told = [_form_of(Head(member, _SIGNS)) for member in upload.members]
    for form in FORMATS:
        fitting = tuple(member for member, its in zip(upload.members, told, strict=True) if its is form)
        if fitting:
            others = tuple(
                member for member, its in zip(upload.members, told, strict=True) if its is not form
            )
            return form, Upload(fitting, others)
    if len(upload.members) == 1 and upload.members[0].entry is None:
        return Unknown(), upload
    if any(is_html(Head(member, _SIGNS).start) for member in upload.members):
        raise FileError(HTML, code="html_export")
    raise FileError(
        "This is a ZIP archive (or an Office document) with nothing in it that is known: a chat as its app exports "
        "it, JSON Lines, or plain text. Upload the text file inside it."
    )


def _form_of(head: Head) -> Format | None:
    return next((form for form in FORMATS if form.fits(head)), None)
