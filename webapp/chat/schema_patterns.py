"""The regular expressions of a JSON schema: one of which the engine would keep a part only is refused here.

xgrammar passes over lookaheads and over anchors that are not at an end. The answer would not be what was asked for, and
it prints the whole pattern on standard error, where vLLM's log ends: what a schema says is nobody else's.
"""

import re
from collections.abc import Iterator
from typing import Any

#: What in a pattern stands for itself: an escaped character, or a class. A class without end is one too: else each of
#: many would be read to the pattern's end. The engine refuses it, and says no more than where it is.
_LITERAL = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]?", re.DOTALL)


def check_patterns(schema: Any) -> None:
    """Raises ValueError, with a sentence, for a pattern that could be kept in part only."""
    for pattern in _patterns(schema):
        bare = _LITERAL.sub("x", pattern)
        if "(?=" in bare or "(?!" in bare:
            raise ValueError("a pattern of the schema has a lookahead, (?=…) or (?!…), which cannot be kept")
        if "^" in bare[1:] or "$" in bare[:-1]:
            raise ValueError(
                "a pattern of the schema may have ^ only as its first character and $ only as its last"
            )


def _patterns(schema: Any) -> Iterator[str]:
    """A property may be called like a keyword: whatever could be a pattern is looked at."""
    if isinstance(schema, list):
        for item in schema:
            yield from _patterns(item)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key == "pattern" and isinstance(value, str):
                yield value
            if key == "patternProperties" and isinstance(value, dict):
                yield from value
            yield from _patterns(value)
