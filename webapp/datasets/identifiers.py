"""E-mail addresses, card numbers, bank accounts and telephone numbers.

Libraries that know more ask for more: those that find names need a language model for each language and seconds a
megabyte, and a telephone number that is written without its country means nothing to phonenumbers but in a region that
somebody names. What has a checksum is checked. Time is linear in the text.
"""

import re
from collections.abc import Iterator

from webapp.datasets.glance import Glance
from webapp.datasets.spans import Span

_DOMAIN = re.compile(r"@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}")
#: Read backward from the @.
_LOCAL = re.compile(r"[\w.+%'-]{0,63}\w")

_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?:[ \u00a0]?[A-Z0-9]{4}){2,7}(?:[ \u00a0]?[A-Z0-9]{1,3})?")
#: Characters of an IBAN by country, from SWIFT's registry.
_IBAN_LENGTHS = {
    country: int(length)
    for length, countries in {
        15: "NO", 16: "BE", 18: "DK FI FK FO GL NL SD", 19: "MK SI", 20: "AT BA EE KZ LT LU MN XK", 21: "CH HR LI LV",
        22: "BG BH CR DE GB GE IE ME RS VA", 23: "AE GI IL IQ OM SO TL", 24: "AD CZ ES MD PK RO SA SE SK TN VG",
        25: "LY PT ST", 26: "IS TR", 27: "BI DJ FR GR IT MC MR SM", 28: "AL AZ BY CY DO GT HN HU LB NI PL SV",
        29: "BR EG PS QA UA", 30: "JO KW MU", 31: "MT SC", 32: "LC", 33: "RU",
    }.items()
    for country in countries.split()
}  # fmt: skip
_CARD = re.compile(
    r"(?<![\w.,+-])(?:"
    r"(?:4\d{3}|5[1-5]\d\d|2[2-7]\d\d|6011|6[25]\d\d|64[4-9]\d|35\d\d)(?:[ -]?\d{4}){3}"
    r"|3[47]\d\d[ -]?\d{6}[ -]?\d{5}"  # American Express
    r"|3(?:0[0-5]|[68]\d)\d[ -]?\d{6}[ -]?\d{4}"  # Diners Club
    r")(?![\w]|[.,-]\d)"
)
_GAP = r"[ \u00a0()./\u2010-\u2013-]{0,3}"
#: Not within digits that are grouped by spaces.
_ALONE = r"(?<!\d[ -])"
_PHONE = re.compile(
    # With a country: 9 to 15 digits, 11 of the countries 1 and 7.
    rf"(?<![\w+.,])(?:\+|{_ALONE}00)(?:[17](?:{_GAP}\d){{10}}|(?![017])\d(?:{_GAP}\d){{8,14}})(?!\d)"
    # Without: a trunk prefix, or the groups of North America.
    rf"|(?<![\w+.,/:-]){_ALONE}(?:\(0[1-9]\d{{0,4}}\)(?:{_GAP}\d){{4,9}}|0[1-9](?:{_GAP}\d){{7,10}})(?!\d)"
    r"|(?<![\w+.,/-])(?:1[ .-]?)?(?:\([2-9]\d\d\) ?|[2-9]\d\d[ .-])[2-9]\d\d[ .-]\d{4}(?![\w-])"
)
#: A date, or an American postal code, which may begin with 0 too.
_NO_PHONE = re.compile(
    r"(?:0?[1-9]|[12]\d|3[01])[./-](?:0?[1-9]|[12]\d|3[01])[./-](?:19|20)?\d\d(?!\d|[./-]\d)|0\d{4}-\d{4}(?!\d)"
)


def identifiers(text: str, seen: Glance) -> Iterator[Span]:
    """In no order; some may lie within others."""
    if "@" in text:
        yield from _emails(text)
    if not seen.number:
        return
    for match in _IBAN.finditer(text):
        end = _iban_end(match)
        if end is not None:
            yield Span(match.start(), end, "iban")
    for match in _CARD.finditer(text):
        if _luhn(match[0]):
            yield Span(match.start(), match.end(), "card_number")
    for match in _PHONE.finditer(text):
        if not _NO_PHONE.match(match[0]):
            yield Span(match.start(), match.end(), "phone")


def _emails(text: str) -> Iterator[Span]:
    for match in _DOMAIN.finditer(text):
        at = match.start()
        local = _LOCAL.match(text[max(0, at - 64) : at][::-1])
        if local:
            yield Span(at - local.end(), match.end(), "email")


def _iban_end(match: re.Match[str]) -> int | None:
    """Where the account ends, which may be before what else is written in capitals; None if it is none."""
    length = _IBAN_LENGTHS.get(match[0][:2])
    places = [place for place, char in enumerate(match[0]) if not char.isspace()]
    if length is None or len(places) < length:
        return None
    end = places[length - 1] + 1
    after = match.string[match.start() + end : match.start() + end + 1]
    account = "".join(match[0][:end].split())
    if after.isalnum() or int("".join(str(int(char, 36)) for char in account[4:] + account[:4])) % 97 != 1:
        return None
    return match.start() + end


def _luhn(number: str) -> bool:
    digits = [int(char) for char in number if char.isdigit()][::-1]
    return sum(digits[::2] + [digit * 2 - 9 * (digit > 4) for digit in digits[1::2]]) % 10 == 0
