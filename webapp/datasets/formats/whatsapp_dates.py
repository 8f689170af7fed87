"""The dates that WhatsApp writes: in the order, the digits and the words of the phone's language."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal

Order = Literal["dmy", "mdy", "ymd"]

#: After noon, in the languages that say so, without points and spaces; at 12 it is noon itself.
_PM = {
    "pm",
    "오후",
    "下午",
    "晚上",
    "午後",
    "م",
    "ös",
    "μμ",
    "अपराह्न",
    "ch",
    "หลังเที่ยง",
    "ip",
    "em",
    "ptg",
    "odp",
    "du",
}
#: Before noon; at 12 it is midnight.
_AM = {
    "am",
    "오전",
    "上午",
    "凌晨",
    "午前",
    "ص",
    "öö",
    "πμ",
    "पूर्वाह्न",
    "sa",
    "ก่อนเที่ยง",
    "ap",
    "fm",
    "pg",
    "dop",
    "de",
}
#: Chinese phones say noon by a word of its own; 12 stays, and 1 is 13.
_NOON = {"中午"}

_SEPARATOR = r"\s?[./\-年년]\s?"
_DATE = (
    rf"(\d{{1,4}}){_SEPARATOR}(\d{{1,2}})(?:{_SEPARATOR}|\s?[月월]\s?)(\d{{1,4}})\s?[.日일]?(?:\s?[гy]\.)?"
)
_TIME = r"([^\d\s\[\]]{0,8}[^\d\[\]]{0,8}?)\s?(\d{1,2})[:.](\d{2})(?:[:.](\d{2}))?\s?([^\d\[\]:]{0,16}?)"
_STAMP = re.compile(rf"{_DATE}[,،]?\s?{_TIME}")
#: Vietnamese phones write the time first.
_TIME_FIRST = re.compile(rf"(\d{{1,2}}):(\d{{2}}), {_DATE}")


@dataclass(frozen=True)
class Stamp:
    """The three numbers of a date as they stand, and the second of the day."""

    numbers: tuple[int, int, int]
    second: int

    def seconds(self, order: Order) -> float | None:
        """Since 1970, as if the phone's clock were UTC; None if there is no such day."""
        a, b, c = self.numbers
        year, month, day = {"dmy": (c, b, a), "mdy": (c, a, b), "ymd": (a, b, c)}[order]
        midnight = _midnight(year + 2000 if year < 100 else year, month, day)
        return None if midnight is None else midnight + self.second


@lru_cache(maxsize=1024)
def _midnight(year: int, month: int, day: int) -> float | None:
    """A chat has many messages a day."""
    try:
        return datetime(year, month, day, tzinfo=UTC).timestamp()
    except ValueError:
        return None


def stamp(text: str) -> Stamp | None:
    """A date and a time, and nothing else."""
    found = _STAMP.fullmatch(text)
    if found is None:
        found = _TIME_FIRST.fullmatch(text)
        if found is None:
            return None
        hour, minute, *numbers = map(int, found.groups())
        return _checked(numbers, hour, minute, 0)
    a, b, c, before, hour, minute, second, after = found.groups()
    return _checked([int(a), int(b), int(c)], _hour(int(hour), before, after), int(minute), int(second or 0))


def _checked(numbers: list[int], hour: int, minute: int, second: int) -> Stamp | None:
    a, b, c = numbers
    if hour > 24 or minute > 59 or second > 59:
        return None
    return Stamp((a, b, c), hour * 3600 + minute * 60 + second)


def _hour(hour: int, *words: str) -> int:
    for word in words:
        word = word.replace(" ", "").replace(".", "").casefold()
        if word in _PM and hour < 12:
            return hour + 12
        if word in _AM and hour == 12:
            return 0
        if word in _NOON and hour < 11:
            return hour + 12
    return hour


class Orders:
    """Which order a file's dates have: the one in which every day exists and time runs on."""

    def __init__(self) -> None:
        self._impossible: dict[Order, int] = dict.fromkeys(("dmy", "mdy", "ymd"), 0)
        self._backward: dict[Order, int] = dict.fromkeys(("dmy", "mdy", "ymd"), 0)
        self._before: dict[Order, float] = {}

    def see(self, found: Stamp) -> None:
        for order in self._impossible:
            seconds = found.seconds(order)
            if seconds is None or (order == "ymd") != (found.numbers[0] > 999):
                self._impossible[order] += 1
                continue
            if seconds < self._before.get(order, 0.0):
                self._backward[order] += 1
            self._before[order] = seconds

    def best(self) -> Order:
        """In doubt the day comes first, as in most countries."""
        return min(self._impossible, key=lambda order: (self._impossible[order], self._backward[order]))
