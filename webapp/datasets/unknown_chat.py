"""Text that looks like a chat in a form that nobody here knows. Read as notes, it would teach its dates and names."""

import re
from collections import Counter

from webapp.datasets.faults import FileError

_LOOKED_AT = 200
_FEWEST = 4
#: A time of day near the beginning of a line, or at the end of a short one ("Ann  10:04 AM").
_TIME = re.compile(r"(?:^.{0,30}?|^.{0,60}\s)(?<![\d:.])\d{1,2}[:.h]\d{2}(?![\d:.]*\d{3})(?:[:.]\d{2})?\b")
_LONGEST_HEADER = 60
_NAMED = re.compile(r"[\[(<*_]{0,3}([^\W\d][^\n:]{0,40}?)[\])>*_]{0,3}:(?:[*_]{0,3}\s|\s*$)")


def looks_like_chat(lines: list[str]) -> bool:
    """Whether a third of the first lines have a time of day, or half begin with one of a few names and a colon."""
    said = [line.strip() for line in lines[:_LOOKED_AT] if line.strip()]
    timed = sum(map(_is_timed, said))
    names = Counter(found[1] for line in said if (found := _NAMED.match(line)))
    named = names.total()
    return (timed >= _FEWEST and timed * 3 >= len(said)) or (
        named >= _FEWEST and named * 2 >= len(said) and 2 <= len(names) <= named // 2
    )


def chat_form_unknown() -> FileError:
    return FileError(
        "This looks like a chat (or a log), in a form that is not known, so nobody could tell who says what. Known are "
        "the exports of WhatsApp ('[date, time] Name: text', 'date, time - Name: text'), Signal ('[2024-05-01, 10:00] "
        "Name: text'), Telegram, Discord, Messenger, Instagram and Slack (JSON). Export it with its app, or write it "
        'as JSON Lines: {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}. If it '
        "is a text to learn from as notes, take the times and names from the beginnings of its lines.",
        code="chat_form_unknown",
    )


def _is_timed(line: str) -> bool:
    found = _TIME.match(line)
    return found is not None and (found.end() <= 40 or len(line) <= _LONGEST_HEADER)
