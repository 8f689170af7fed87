"""Values inside a large JSON document, one at a time: the document itself is never held.

JSON libraries read a document whole, or as events that say no line, bound no string and take a key twice. This scanner
only finds where each wanted value begins and ends; the rest is the strict parser's, and a bad element costs but itself.
"""

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import IO

#: A place in a document: keys, and positions in arrays.
Path = tuple[str | int, ...]
#: A place with any position: ("chats", "list", ANY, "name").
Pattern = tuple[str, ...]
ANY = "*"

_CHUNK = 1 << 18
_MAX_KEY_BYTES = 1_000
#: Of an object on the way to what is wanted.
_MAX_KEYS = 10_000
#: Values on the way that are not what is wanted. An export has a few for each chat.
_MAX_PASSED = 500_000
_SPACE = re.compile(rb"[ \t\r\n]*")
_SCALAR = re.compile(rb"[^ \t\r\n,:\[\]{}\"]*")
#: Repeats are bounded because Python's matcher keeps a state for each; where one stops early, the next match goes on.
_FLAT = re.compile(
    rb'(?:[^"\[\]{}]+|"[^"\\]*(?:\\.[^"\\]*){0,1000}"|\[[^"\[\]{}]*\]|\{[^"\[\]{}]*\}){0,1000}',
    re.DOTALL,
)
_OPENING, _CLOSING = re.compile(rb"[\[{]+"), re.compile(rb"[\]}]+")
_IN_STRING = re.compile(rb'[^"\\]*(?:\\.[^"\\]*){0,1000}', re.DOTALL)


class Broken(Exception):
    """The document's structure is wrong here, and nothing after this place can be told apart."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


@dataclass(frozen=True)
class Value:
    """`raw`: its bytes, or None if they are more than was asked for."""

    path: Path
    line: int
    raw: bytes | None


def values(file: IO[bytes], wanted: Collection[Pattern], limit: int) -> Iterator[Value]:
    """Every value at a wanted place, in the document's order; raises Broken. Memory: `limit` bytes and a buffer."""
    scan = _Scan(file)
    yield from _descend(scan, (), (), frozenset(wanted), limit)
    if scan.peek():
        raise Broken(scan.line, "more text after the end of the JSON")


def places(file: IO[bytes], wanted: Collection[Pattern]) -> Iterator[Path]:
    """The wanted places that there are, as they come; raises Broken. Nothing is read into memory."""
    return (value.path for value in _descend(_Scan(file), (), (), frozenset(wanted), None))


def _descend(
    scan: "_Scan", path: Path, shape: Pattern, wanted: frozenset[Pattern], limit: int | None
) -> Iterator[Value]:
    """`limit` None: say that a value is there, and look inside it all the same."""
    first, line = scan.peek(), scan.line
    if shape in wanted:
        if limit is not None:
            yield Value(path, line, scan.take(limit))
            return
        yield Value(path, line, None)
    else:
        scan.passed += 1
        if scan.passed > _MAX_PASSED:
            raise Broken(line, f"more than {_MAX_PASSED:,} values that are no part of a conversation")
    leads_on = any(len(place) > len(shape) and place[: len(shape)] == shape for place in wanted)
    if leads_on and first == b"{":
        for key in scan.fields():
            yield from _descend(scan, (*path, key), (*shape, key), wanted, limit)
    elif leads_on and first == b"[":
        for index in scan.items():
            yield from _descend(scan, (*path, index), (*shape, ANY), wanted, limit)
    else:
        scan.take(0)


class _Scan:
    """A position in a document."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._buffer = b""
        self._at = 0
        self.line = 1
        self.passed = 0
        self._kept: list[bytes] | None = None
        self._size = 0
        self._limit = 0

    def peek(self) -> bytes:
        """The first character that is not space; empty at the end."""
        while True:
            self._go(self._match(_SPACE))
            if self._at < len(self._buffer):
                return self._buffer[self._at : self._at + 1]
            if not self._more():
                return b""

    def fields(self) -> Iterator[str]:
        """The keys of the object that begins here; the caller consumes each value."""
        self._go(self._at + 1)
        seen: set[str] = set()
        while (char := self.peek()) != b"}":
            if seen:
                self._expect(b",")
                char = self.peek()
            if char != b'"':
                raise self._broken("a key in double quotes was expected")
            key = self._key(self.take(_MAX_KEY_BYTES))
            self._expect(b":")
            if key in seen:
                raise self._broken("the same key twice in one object")
            if len(seen) == _MAX_KEYS:
                raise self._broken(f"more than {_MAX_KEYS:,} keys in one object")
            seen.add(key)
            self.peek()
            yield key
        self._go(self._at + 1)

    def items(self) -> Iterator[int]:
        """The positions of the array that begins here; the caller consumes each value."""
        self._go(self._at + 1)
        index = 0
        while self.peek() != b"]":
            if index:
                self._expect(b",")
            yield index
            index += 1
        self._go(self._at + 1)

    def take(self, limit: int) -> bytes | None:
        """Consume the value that begins here; its bytes, or None if they are more than `limit`."""
        first = self.peek()
        self._kept, self._size, self._limit = [], 0, limit
        if first == b'"':
            self._string()
        elif first in (b"{", b"["):
            self._container()
        else:
            self._scalar()
        kept, self._kept = self._kept, None
        return None if kept is None else b"".join(kept)

    def _scalar(self) -> None:
        length = 0
        while True:
            end = self._match(_SCALAR)
            length += end - self._at
            self._go(end)
            if self._at < len(self._buffer) or not self._more():
                break
        if not length:
            raise self._broken("a value was expected" if self._buffer[self._at :] else "it ends too early")

    def _string(self) -> None:
        self._go(self._at + 1)
        while True:
            self._go(self._match(_IN_STRING))
            rest = len(self._buffer) - self._at
            if rest and self._buffer[self._at] == ord('"'):
                self._go(self._at + 1)
                return
            # A backslash needs the character after it.
            if rest < 2 and not self._more():
                raise self._broken("it ends inside a string")

    def _container(self) -> None:
        self._go(self._at + 1)
        depth = 1
        while depth:
            self._go(self._match(_FLAT))
            if self._at == len(self._buffer):
                if not self._more():
                    raise self._broken("it ends too early")
                continue
            char = self._buffer[self._at]
            if char == ord('"'):
                self._string()
            elif char in b"[{":
                end = self._match(_OPENING)
                depth += end - self._at
                self._go(end)
            elif char in b"]}":
                # What closes more than this value is not this value's.
                end = min(self._match(_CLOSING), self._at + depth)
                depth -= end - self._at
                self._go(end)

    def _key(self, raw: bytes | None) -> str:
        if raw is None:
            raise self._broken(f"a key longer than {_MAX_KEY_BYTES:,} bytes")
        try:
            return str(json.loads(raw.decode()))
        except ValueError:
            raise self._broken("a key that is not JSON") from None

    def _expect(self, char: bytes) -> None:
        found = self.peek()
        if found != char:
            raise self._broken(f"'{char.decode()}' was expected" if found else "it ends too early")
        self._go(self._at + 1)

    def _match(self, pattern: re.Pattern[bytes]) -> int:
        found = pattern.match(self._buffer, self._at)
        assert found is not None, "the patterns match the empty string"
        return found.end()

    def _go(self, to: int) -> None:
        self.line += self._buffer.count(b"\n", self._at, to)
        if self._kept is not None:
            self._size += to - self._at
            if self._size > self._limit:
                self._kept = None
            else:
                self._kept.append(self._buffer[self._at : to])
        self._at = to

    def _more(self) -> bool:
        chunk = self._file.read(_CHUNK)
        self._buffer, self._at = self._buffer[self._at :] + chunk, 0
        return bool(chunk)

    def _broken(self, reason: str) -> Broken:
        return Broken(self.line, reason)
