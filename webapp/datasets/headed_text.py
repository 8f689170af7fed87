"""Plain text in which a message begins with a header on its line (date, name) and goes on until the next such line."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from webapp.datasets.faults import Bad, RowError
from webapp.datasets.lines import MAX_LINE_BYTES, text_lines
from webapp.datasets.upload import Member

H = TypeVar("H")


@dataclass(frozen=True)
class Headed(Generic[H]):
    """`text`: what follows the header on its line, and the lines after it."""

    line: int
    header: H
    text: str


def headed(
    member: Member, read: Callable[[str], tuple[H, str] | None], notes: Counter[str]
) -> Iterator[Headed[H] | Bad]:
    """`read`: a line's header and what follows it, or None for a line that goes on. Lines before the first are no
    message's. `notes`: as for `text_lines`."""
    start, header, texts, size = 0, None, [], 0

    def whole() -> Headed[H] | Bad:
        assert header is not None
        if size > MAX_LINE_BYTES:
            fault = RowError("line", f"a message longer than {MAX_LINE_BYTES:,} characters", "Leave it out.")
            return Bad(start, fault, member.entry)
        return Headed(start, header, "\n".join(texts).strip())

    for number, line in text_lines(member.open(), notes):
        if isinstance(line, RowError):
            yield Bad(number, line, member.entry)
            continue
        found = read(line)
        if found is None:
            size += len(line)
            if size <= MAX_LINE_BYTES:
                texts.append(line)
            continue
        if header is not None:
            yield whole()
        start, size = number, len(line)
        header, texts = found[0], [found[1]]
    if header is not None:
        yield whole()
