"""Notes and documents (.txt, .md): passages about or by a person, each an answer to its heading or the one before."""

import re
from collections import Counter
from collections.abc import Iterator

from webapp.datasets.conversation import Conversation, Turn, conversation
from webapp.datasets.faults import Bad, FileError, RowError
from webapp.datasets.findings import Findings
from webapp.datasets.head import Head
from webapp.datasets.lines import text_lines
from webapp.datasets.mistaken import is_markup
from webapp.datasets.upload import Asked, Member, Upload

NAME = "notes"

#: Paragraphs are joined up to this, and longer ones parted at the ends of sentences: about 350 tokens.
PASSAGE_CHARACTERS = 1_200
#: Less than this is no text to learn from, and most likely something else.
_LEAST_CHARACTERS = 200
#: A paragraph is held in memory up to here.
_LONGEST_CHARACTERS = 50_000
_LONGEST_HEADING = 200
_HEADING = re.compile(r"#{1,6} +(.+?)[ #]*")
_SENTENCE_END = re.compile(r"(?<=[.!?…؟।])\s+|(?<=[。！？])")
_JSON = re.compile(r'\{|\[\s*[\[{"\]]')
_NO_TEXT = re.compile("[\x00-\x08\x0e-\x1f\ufffd]")
_TABLE_LINES = 5

#: A heading, or a paragraph with the line it begins on.
Block = tuple[int, bool, str]


def fits(head: Head) -> bool:
    """Text that is not JSON, and long enough to say something."""
    text = "\n".join(head.text).strip()
    if len(text) < _LEAST_CHARACTERS or is_markup(head.start):
        return False
    # The last character may be cut in two.
    return not _JSON.match(text) and not _NO_TEXT.search(text[:-1])


def conversations(upload: Upload, asked: Asked, findings: Findings) -> Iterator[Conversation | Bad]:
    section = passages = 0
    for member in upload.members:
        if is_table(Head(member, ()).text):
            raise FileError(
                'This is a table (CSV or the like). Write each row as one JSON object, such as {"prompt": "…", '
                '"completion": "…"}, on a line of its own.'
            )
        section, before, part = section + 1, "", 0
        for block in _passages(member, findings.notes):
            if isinstance(block, Bad):
                yield block
                continue
            line, is_heading, text = block
            if is_heading:
                section, before, part = section + 1, text, 0
                continue
            passages += 1
            if before:
                part += 1
                yield _pair(member, line, before, text, f"{section}", part)
            before = text
    findings.facts.append(
        f"{passages:,} passages. Each is trained as the answer to its heading, or to the passage before it."
    )


def _pair(member: Member, line: int, before: str, text: str, source: str, part: int) -> Conversation | Bad:
    try:
        talk = conversation([Turn("user", before), Turn("assistant", text, 1)])
    except RowError as error:
        return Bad(line, error, member.entry)
    talk.source, talk.part, talk.line = source, part, line
    return talk


def _passages(member: Member, notes: Counter[str]) -> Iterator[Block | Bad]:
    """Headings, and paragraphs joined or parted to passages."""
    start, joined = 0, ""
    for block in _blocks(member, notes):
        if isinstance(block, Bad):
            yield block
            continue
        line, is_heading, text = block
        for piece in [text] if is_heading else _pieces(text):
            if joined and (is_heading or len(joined) + len(piece) > PASSAGE_CHARACTERS):
                yield start, False, joined
                joined = ""
            if is_heading:
                yield block
            else:
                start, joined = (start, f"{joined}\n\n{piece}") if joined else (line, piece)
    if joined:
        yield start, False, joined


def _blocks(member: Member, notes: Counter[str]) -> Iterator[Block | Bad]:
    start, paragraph, size = 0, [], 0
    for number, line in text_lines(member.open(), notes):
        if isinstance(line, RowError):
            yield Bad(number, line, member.entry)
            continue
        # A heading is short; the pattern would take its time on a long line.
        heading = _HEADING.fullmatch(line) if len(line) < _LONGEST_HEADING else None
        if paragraph and (heading or not line.strip() or size > _LONGEST_CHARACTERS):
            yield start, False, "\n".join(paragraph).strip()
            paragraph, size = [], 0
        if heading:
            yield number, True, heading[1]
        elif line.strip():
            start = start if paragraph else number
            paragraph.append(line.rstrip())
            size += len(line)
    if paragraph:
        yield start, False, "\n".join(paragraph).strip()


def _pieces(paragraph: str) -> Iterator[str]:
    """A paragraph in pieces of whole sentences; one sentence may be longer."""
    if len(paragraph) <= PASSAGE_CHARACTERS:
        yield paragraph
        return
    piece = ""
    for sentence in _SENTENCE_END.split(paragraph):
        if piece and len(piece) + len(sentence) > PASSAGE_CHARACTERS:
            yield piece
            piece = ""
        piece = f"{piece} {sentence}".strip()
    if piece:
        yield piece


def is_table(text: list[str]) -> bool:
    """Whether the first lines all have the same number of separators."""
    rows = [line for line in text if line.strip()][:_TABLE_LINES]
    for separator, least in (("\t", 1), (";", 1), (",", 2)):
        counts = {row.count(separator) for row in rows}
        if len(rows) == _TABLE_LINES and len(counts) == 1 and counts.pop() >= least:
            return True
    return False
