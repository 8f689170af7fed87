"""UTF-8 that was once read as Latin-1 or Windows-1252 ("Ã©" for "é", "â€™" for "’"), as it was meant to be read."""

import re
from collections import Counter

NOTE = 'texts in a wrong encoding ("Ã©" for "é") were repaired'

#: What Windows-1252 makes of the bytes that are control characters in Latin-1.
_TYPED = {ord(char): byte for byte in range(0x80, 0xA0) if (char := bytes([byte]).decode("cp1252", "ignore"))}
_AFTER = "\u0080-\u00bf" + "".join(re.escape(chr(code)) for code in _TYPED)
#: The first byte of a character in UTF-8, and those after it.
_READ_WRONGLY = re.compile(f"[\u00c2-\u00f4][{_AFTER}]+")
#: What may stand behind a last letter: "JOSÉ…" is no "JOSɅ".
_PUNCTUATION = "…”“’‘„–—‹›«»™€¡¿\u00a0"
#: What may stand behind a small one, in twos ("déjà…»"); behind a no-break space there may be anything.
_BEHIND_SMALL = frozenset(f"{_PUNCTUATION}‚®©°²·•§\u00ad")
_SPACE = "\u00a0"
#: Small letters and what nobody types behind them: how "’", "–" and a byte order mark begin.
_NEVER_TYPED = ("â€", "ï»¿")
#: Nobody's letters, but for those of Romanian, Vietnamese and Azerbaijani; and control characters.
_RARE = re.compile("[\u0080-\u009f\u0180-\u019f\u01a2-\u01ae\u01b1-\u0217\u021c-\u0258\u025a-\u02ff]")


def repaired(text: str) -> str:
    """The text, each line that decodes read rightly; others stay as they are."""
    if text.isascii() or not _READ_WRONGLY.search(text):
        return text
    return "\n".join(map(_line, text.split("\n")))


def repair(text: str, notes: Counter[str]) -> str:
    """`repaired`, and noted if it was."""
    right = repaired(text)
    if right != text:
        notes[NOTE] += 1
    return right


def _line(line: str) -> str:
    found = list(_READ_WRONGLY.finditer(line))
    if not any(map(_is_telling, found)):
        return line
    try:
        right = line.translate(_TYPED).encode("latin-1").decode("utf-8")
    except UnicodeError:
        return line
    # Nobody types control characters, so text that has them was read wrongly, whatever it says.
    typed = not any("\u0080" <= char <= "\u009f" for each in found for char in each[0])
    return line if typed and _RARE.search(right) else right


def _is_telling(found: re.Match[str]) -> bool:
    """Whether it is more than a letter and signs that may well follow it."""
    letter, signs, start = found[0][0], found[0][1:], found.start()
    if letter.islower():
        return found[0].startswith(_NEVER_TYPED) or not (
            signs[0] == _SPACE or _BEHIND_SMALL.issuperset(signs)
        )
    if len(signs) > 1 or signs not in _PUNCTUATION or letter == "Â":
        return True
    before = found.string[start - 1 : start]
    return before.islower() or (letter == "Ã" and not before.isalpha())
