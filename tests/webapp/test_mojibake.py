"""Texts in a wrong encoding are repaired, in every format, and nobody's own signs are taken for one."""

import json
from typing import Any

import pytest

from tests.webapp.uploads import check, talks
from webapp.datasets.mojibake import NOTE, repaired

TEXTS = [
    "don’t — he said “yes” …",
    "Käse und Brötchen für Jürgen, bitte",
    "Ça coûte 5 €, à côté de l’été",
    "¿Qué pasó mañana? ¡Olé!",
    "Zażółć gęślą jaźń",
    "Ăsta e un text românesc: și, ță, înțeleg",
    "Привет, как дела?",
    "Tiếng Việt: ngày mai trời mưa, ơ ư",
    "Türkçe: İstanbul'da ığdır",
    "こんにちは、元気ですか",
    "مرحبا كيف حالك",
    "haha 😂👍🏽 ok",
]


def misread(text: str, encoding: str) -> str:
    """As a program shows it that takes its bytes for another encoding; bytes without a sign stay control characters."""
    raw = text.encode()
    if encoding == "latin-1":
        return raw.decode("latin-1")
    return "".join(bytes([byte]).decode(encoding, "ignore") or chr(byte) for byte in raw)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
@pytest.mark.parametrize("text", TEXTS)
def test_what_was_misread_is_read(text: str, encoding: str) -> None:
    wrong = misread(text, encoding)
    assert wrong != text
    assert repaired(wrong) == text
    assert repaired(f"{wrong}\nzwölf 😀") == f"{text}\nzwölf 😀", "line by line"
    assert repaired(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "JOSÉ… CAFÉ” HALLÅ… OLÉ™",
        "« À LA CARTÉ\u00a0»",
        "IRMÃ… AMANHÃ»",
        "Ä… was?",
        "naïve Äpfel, ÄÖÜ",
        "The sign Ã is an A with a tilde, and © is a sign too.",
        "Ã© is how é looks when it goes wrong",
        "Le café\u00a0– c'est bon",
        "Il est fatigué\u00a0».",
        "voilà\u00a0… oui",
        "voué\u00a0à\u00a0œuvrer, prêt à\u00a0½ prix, à\u00a0£5, là\u00a0”",
        "C'était l’été…» et là”…",
        "Das macht Spaß… oder? 9 Fuß²",
        "»Juchhé…«, sagte er",
        "así…¿no? está…¡venga! aquí”…",
        "SÍ¿QUÉ? HABLÓ¡TÚ!",
        "irmã\u00a0– amanhã…» manhã”–",
        "Ele é\u00a0— sim",
        "lá”… và nhà…” thì",
        "Żółć? é…” ó„…",
        "Pelé™®",
    ],
)
def test_what_people_type_stays(text: str) -> None:
    assert repaired(text) == text


def misread_file(data: str) -> str:
    return misread(data, "cp1252")


CHAT = "13/05/2024, 10:04 - Zoë: Où es-tu ?\n13/05/2024, 10:05 - Jürgen: À côté, j’arrive\n"
ROW = {
    "messages": [
        {"role": "user", "content": "Où es-tu ?"},
        {"role": "assistant", "content": "À côté, j’arrive"},
    ]
}
TELEGRAM: dict[str, Any] = {
    "messages": [
        {"type": "message", "from": "Zoë", "text": "Où es-tu ?", "date_unixtime": "1"},
        {"type": "message", "from": "Jürgen", "text": "À côté, j’arrive", "date_unixtime": "2"},
    ]
}


@pytest.mark.parametrize(
    "data",
    [CHAT, json.dumps(ROW, ensure_ascii=False), json.dumps(TELEGRAM, ensure_ascii=False)],
    ids=["WhatsApp", "rows", "Telegram"],
)
@pytest.mark.parametrize("escaped", [False, True])
def test_every_format_is_repaired_and_says_so(data: str, escaped: bool) -> None:
    wrong = misread_file(data)
    if escaped and data.startswith("{"):
        wrong = json.dumps(json.loads(wrong))
    result = check(wrong, me="Jürgen")
    assert talks(result) == [[("user", "Où es-tu ?"), ("assistant", "À côté, j’arrive")]]
    assert any(note.endswith(NOTE) for note in result.report.as_json()["notes"])
    assert not any(NOTE in note for note in check(data, me="Jürgen").report.as_json()["notes"])


def test_notes_are_repaired() -> None:
    text = "# Été\n\n" + "À côté de la maison, on n’a rien vu. " * 8
    assert talks(check(misread_file(text))) == talks(check(text))
