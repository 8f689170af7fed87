"""Archives and documents as people have them: what is not an export says so, and nothing is left out silently."""

import json
import zipfile

import pytest

from tests.webapp.test_formats import CHAT, PROSE, SHAREGPT, lines
from tests.webapp.uploads import check, talks, zipped

PAGE = f'<!DOCTYPE html>\n<html>\n <head>\n  <link href="css/style.css" rel="stylesheet"/></head><body>{PROSE}</body>'
STYLE = "body {\n    margin: 0;\n    font: 12px/18px 'Open Sans', sans-serif;\n}\n" * 20
SCRIPT = '"use strict";\n\nwindow.AllowBackFromHistory = false;\nfunction CheckLocation() {\n}\n' * 20
TELEGRAM = {
    "ChatExport/messages.html": PAGE,
    "ChatExport/css/style.css": STYLE,
    "ChatExport/js/script.js": SCRIPT,
    "ChatExport/images/back.png": b"\x89PNG\r\n\x1a\n" + bytes(99),
}
TYPES = (
    '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\r\n'
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="xml" ContentType="application/xml"/></Types>'
)
WORDS = (
    '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\r\n<w:document xmlns:w="http://schemas.openxmlformats.org/'
    f'wordprocessingml/2006/main"><w:body><w:p><w:r><w:t>{PROSE}</w:t></w:r></w:p></w:body></w:document>'
)
DOCX = {
    "[Content_Types].xml": TYPES,
    "_rels/.rels": '<?xml version="1.0"?><Relationships/>',
    "word/document.xml": WORDS,
}
ODT = {"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": WORDS, "notes.txt": PROSE}
PAGES = {"Index/Document.iwa": b"\x00\x9c\x01\x00" + bytes(99), "Metadata/BuildVersionHistory.plist": WORDS}
EPUB = {"mimetype": "application/epub+zip", "OEBPS/one.xhtml": PAGE}
CHAT_OF_WHATSAPP = "13/05/2024, 10:04 - Ann: Hi\n13/05/2024, 10:05 - Ben: Hello\n"


@pytest.mark.parametrize(
    "files",
    [
        TELEGRAM,
        {"page.html": PAGE, "page_files/site.js": SCRIPT},
        {"a.htm": "<!-- saved -->\n<html>" + PROSE},
    ],
)
def test_an_html_export_is_no_notes(files: dict[str, bytes | str]) -> None:
    report = check(zipped(files)).report
    assert (report.code, report.good) == ("html_export", 0)
    assert "Machine-readable JSON" in str(report.error)


def test_a_page_beside_the_real_export_is_left_out() -> None:
    report = check(zipped({"result.json": lines(CHAT), **TELEGRAM})).report
    assert (report.format, report.good, report.error) == ("openai_chat", 1, None)


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        (DOCX, ".docx"),
        (DOCX | {"docProps/a.txt": PROSE}, ".docx"),
        (ODT, ".odt"),
        (PAGES, "Pages"),
        (EPUB, "e-book"),
    ],
)
@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_documents_say_how_to_save_them(files: dict[str, bytes | str], kind: str, method: int) -> None:
    report = check(zipped(files, method)).report
    assert (report.code, report.good) == ("office_document", 0)
    assert kind in str(report.error)
    assert "plain text" in str(report.error)
    assert "HTML" not in str(report.error)


@pytest.mark.parametrize(
    ("text", "code", "advice"),
    [
        (f'<?xml version="1.0"?>\n<!DOCTYPE html>\n<html xmlns="x"><body>{PROSE}', "html_export", "HTML"),
        (f'\ufeff<meta charset="utf-8"><body>{PROSE}', "html_export", "HTML"),
        (f'<?xml version="1.0"?>\n<smses count="1"><sms body="{PROSE}"/></smses>', "unreadable_file", "XML"),
    ],
)
def test_markup_is_no_notes(text: str, code: str, advice: str) -> None:
    report = check(text).report
    assert (report.code, report.good) == (code, 0)
    assert advice in str(report.error)


def test_every_file_that_was_not_used_is_named() -> None:
    files = {
        "a.jsonl": lines(CHAT),
        "b.jsonl": lines(SHAREGPT),
        "photos/cat.jpg": b"\xff\xd8\xff\xe0\x00" * 99,
        "empty.txt": "",
        "bill.pdf": b"%PDF-1.7\n" + PROSE.encode(),
    }
    report = check(zipped(files)).report
    told = report.as_json()
    assert (report.good, told["left_out"]["files"]) == (1, 4)
    reasons = {each["name"]: each["reason"] for each in told["left_out"]["listed"]}
    assert reasons["b.jsonl"] == "of the format sharegpt"
    assert reasons["photos/cat.jpg"] == "not text"
    assert reasons["empty.txt"] == "empty"
    assert "PDF" in reasons["bill.pdf"]
    assert any(note.startswith("4 files of the archive were left out: ") for note in told["notes"])


@pytest.mark.parametrize("document", [DOCX, ODT, EPUB])
@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_documents_attached_to_a_chat_are_left_out(document: dict[str, bytes | str], method: int) -> None:
    files: dict[str, bytes | str] = {"chat.txt": CHAT_OF_WHATSAPP, "attached": zipped(document, method)}
    report = check(zipped(files), me="Ben").report
    assert (report.error, report.good) == (None, 1)
    [left] = report.as_json()["left_out"]["listed"]
    assert (left["name"], left["reason"]) == ("attached", "not text")


def test_a_chat_may_speak_of_documents() -> None:
    chat = CHAT_OF_WHATSAPP + "13/05/2024, 10:06 - Ben: the type is application/epub+zip\n"
    assert check(zipped({"chat.txt": chat}), me="Ben").report.good == 1


def test_a_list_of_names_was_used() -> None:
    users = [{"id": "U1", "profile": {"real_name": "Ann"}}, {"id": "U2", "profile": {"real_name": "Ben"}}]
    said = [{"type": "message", "user": f"U{at}", "text": "hi", "ts": f"{at}.0"} for at in (1, 2)]
    files = {
        "users.json": json.dumps(users),
        "general/2024-05-01.json": json.dumps(said),
        "channels.json": "[]",
    }
    report = check(zipped(files), me="Ben").report
    assert (report.format, report.good) == ("slack", 1)
    assert [each["name"] for each in report.as_json()["left_out"]["listed"]] == ["channels.json"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_wide_text_in_an_archive_is_read(encoding: str) -> None:
    sound = b"\xff\xfe" + bytes(range(256)) * 9
    files: dict[str, bytes | str] = {
        "a.jsonl": lines(CHAT).encode(encoding),
        "b.jsonl": lines(CHAT),
        "c.mp3": sound,
    }
    report = check(zipped(files)).report
    assert report.good == 2
    assert [each["name"] for each in report.as_json()["left_out"]["listed"]] == ["c.mp3"]


UNKNOWN_CHATS = {
    "a date with words": "".join(
        f"Mon 13 May, 10:0{at} Ann wrote: hello {at}\nand more\n" for at in range(9)
    ),
    "copied from Slack": "".join(f"Ann  10:0{at} AM\nHello number {at}, how are you\n" for at in range(9)),
    "copied from Teams": "".join(f"[Monday 10:0{at}] Ben Stone\nHello number {at}\n" for at in range(9)),
    "names alone": "".join(
        f"{who}: Hello there, I am number {at}\n" for at in range(9) for who in ("Ann", "Ben")
    ),
    "a log": "".join(f"2024-05-01 10:00:0{at} INFO started worker {at}\n" for at in range(9)),
}


@pytest.mark.parametrize("name", UNKNOWN_CHATS)
@pytest.mark.parametrize("packed", [False, True])
def test_a_chat_in_an_unknown_form_is_no_notes(name: str, packed: bool) -> None:
    text = UNKNOWN_CHATS[name]
    report = check(zipped({"chat.txt": text}) if packed else text).report
    assert (report.code, report.good) == ("chat_form_unknown", 0)
    assert "WhatsApp" in str(report.error)


def test_beside_known_chats_it_is_named() -> None:
    report = check(
        zipped({"a.txt": CHAT_OF_WHATSAPP, "b.txt": UNKNOWN_CHATS["names alone"]}), me="Ben"
    ).report
    assert report.good == 1
    [left] = report.as_json()["left_out"]["listed"]
    assert (left["name"], left["reason"]) == ("b.txt", "like a chat, in a form that is not known")


@pytest.mark.parametrize(
    "text",
    [
        f"# Recipe\n\nFlour: 200 g\nSugar: 50 g\nEggs: two\nMilk: a cup\n\n{PROSE}",
        f"# Monday\n{PROSE}\n\nWe met at 10:30 and left at 12:15. {PROSE}\n\n2024-05-01\n{PROSE}",
        f"# Notes\nNote: this is long.\n{PROSE}\nNote: so is this.\n{PROSE}\n{PROSE}",
    ],
)
def test_notes_with_times_and_colons_are_notes(text: str) -> None:
    result = check(text)
    assert result.report.format == "notes"
    assert talks(result)
