"""What people upload in place of text: told by its content, and answered with how to get the text."""

import re

from webapp.datasets.faults import FileError

#: First bytes, and what to say of them.
_MAGIC = {
    b"\x1f\x8b": "This is a gzip archive. Unpack it and upload the text file.",
    b"7z\xbc\xaf": "This is a 7z archive. Unpack it and upload the text file, or a ZIP of it.",
    b"Rar!": "This is a RAR archive. Unpack it and upload the text file, or a ZIP of it.",
    b"%PDF": "This is a PDF. Upload the conversations as JSON Lines, or the text as a .txt file.",
    b"{\\rtf": "This is an RTF document. Save it as plain text (UTF-8) and upload that.",
    b"PAR1": "This is a Parquet file. Export it as JSON Lines.",
    b"SQLite format 3": "This is a SQLite database. Export the chats with the app's own export instead.",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "This is a document of an older Office (.doc, .xls). Save it as plain text "
    "(UTF-8) or, a table, as JSON Lines, and upload that.",
}
_HTML = (
    "This export is HTML, made for reading. Export again in a form for machines: Telegram Desktop: Export chat "
    "history, format 'Machine-readable JSON'. Facebook and Instagram: Download your information, format JSON. "
    "DiscordChatExporter: format JSON. ChatGPT and Claude: upload the ZIP that they send, as it is. WhatsApp: "
    "Export chat, without media."
)
_OFFICE = (
    "This is {kind}. Save its text as plain text (UTF-8, .txt) and upload that; of a table or of conversations, write "
    'a row each as JSON Lines: {{"prompt": "…", "completion": "…"}}.'
)
#: What stands in some file of each kind of package, at its start: in XML, or as the name of a type alone.
_PACKAGES = {
    b"schemas.openxmlformats.org/package/2006/content-types": "an Office document (.docx, .xlsx, .pptx)",
    b"application/vnd.oasis.opendocument": "an Office document (.odt, .ods, .odp)",
    b"developer.apple.com/namespaces/": "a document of Pages, Numbers or Keynote",
    b"application/epub+zip": "an e-book (EPUB)",
}
_PACKAGE_BYTES = 2_000
_TYPE = b"application/"
#: Binary, and told by nothing but its name.
_IWORK = ".iwa"
#: A comment ends at its first "-->": were there other ways to read one, many would take for ever.
_PAGE = re.compile(
    rb"(?:<!--(?:(?!-->).)*-->\s*)*<(?:!doctype\s+html|(?:html|head|body|meta|title)[\s>/])", re.DOTALL | re.I
)
_MARKUP = re.compile(rb"<(?:\?xml|!doctype|svg)\b", re.I)
_HTML_WITHIN = re.compile(rb"<html[\s>]", re.I)


def magic_advice(head: bytes) -> str | None:
    """What to say of a file that begins like a known kind of binary one."""
    return next((advice for magic, advice in _MAGIC.items() if head.startswith(magic)), None)


def is_html(head: bytes) -> bool:
    """A page, with or without what may stand before its first tag; XHTML too."""
    text = _text(head)
    return bool(_PAGE.match(text)) or (bool(_MARKUP.match(text)) and bool(_HTML_WITHIN.search(text)))


def is_markup(head: bytes) -> bool:
    """HTML or any other XML."""
    return is_html(head) or bool(_MARKUP.match(_text(head)))


def check_markup(head: bytes) -> None:
    """Raise FileError for a file that is a page or another XML document."""
    if is_html(head):
        raise html_export()
    if is_markup(head):
        raise FileError(
            "This is an XML document. Write the conversations as JSON Lines, a conversation a line."
        )


def html_export(*, beside: str = "") -> FileError:
    return FileError(_HTML + beside, code="html_export")


def package_kind(name: str, head: bytes) -> str | None:
    """What a ZIP is, if one of its files (the name, how it begins) shows that it is a document.

    One that is itself packed in the archive shows nothing (a chat's attachment), nor does a text that speaks of the
    signs.
    """
    if name.endswith(_IWORK):
        return "a document of Pages, Numbers or Keynote"
    start = _text(head[:_PACKAGE_BYTES])
    if not start.startswith((b"<", _TYPE)):
        return None
    return next((kind for sign, kind in _PACKAGES.items() if sign in start), None)


def office_document(kind: str) -> FileError:
    return FileError(_OFFICE.format(kind=kind), code="office_document")


def _text(head: bytes) -> bytes:
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()
