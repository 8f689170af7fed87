"""ChatGPT's export: an array of {"title", "current_node", "mapping": {id: {"message", "parent", "children"}}}."""

import re
from collections.abc import Iterator
from typing import Any

from webapp.datasets.assistants import Said, Talks
from webapp.datasets.conversation import Conversation
from webapp.datasets.documents import read
from webapp.datasets.faults import Bad, RowError
from webapp.datasets.findings import Findings
from webapp.datasets.head import Head
from webapp.datasets.scan import ANY
from webapp.datasets.upload import Asked, Upload

NAME = "chatgpt"

SIGNS = (frozenset({(ANY, "mapping"), (ANY, "current_node")}),)
#: A conversation with all its branches and tools.
MAX_BYTES = 8_000_000
#: Marks of citations that only ChatGPT's page can show.
_CITATION = re.compile("\ue200[^\ue200\ue201]{0,2000}\ue201|[\ue200-\ue206]")
_TEXTS = ("text", "multimodal_text")


def fits(head: Head) -> bool:
    return head.has_any(SIGNS)


def conversations(upload: Upload, asked: Asked, findings: Findings) -> Iterator[Conversation | Bad]:
    talks = Talks(asked.voice, findings)
    for member in upload.members:
        yield from read(
            member, [(ANY,)], MAX_BYTES, lambda found: talks.conversation(_said(found.row), found.line)
        )
    talks.close()


def _said(row: dict[str, Any]) -> list[Said]:
    """What is on the page: from the last message back through its parents, past the branches that were edited away."""
    mapping, node = row.get("mapping"), row.get("current_node")
    if not isinstance(mapping, dict):
        raise RowError("mapping", "not an object", "Upload the export as ChatGPT sent it.")
    if not isinstance(node, str) or node not in mapping:
        raise RowError("current_node", "names no message of this conversation", "Export again.")
    said: list[Said] = []
    seen: set[str] = set()
    while isinstance(node, str) and isinstance(mapping.get(node), dict):
        if node in seen:
            raise RowError("mapping", "a message that is its own ancestor", "Export again.")
        seen.add(node)
        if (message := _message(mapping[node].get("message"))) is not None:
            said.append(message)
        node = mapping[node].get("parent")
    return said[::-1]


def _message(message: Any) -> Said | None:
    """None for what neither side said to the other: tools, hidden instructions, thoughts, code for a tool."""
    if not isinstance(message, dict):
        return None
    author, content, metadata = message.get("author"), message.get("content"), message.get("metadata")
    role = author.get("role") if isinstance(author, dict) else None
    hidden = isinstance(metadata, dict) and metadata.get("is_visually_hidden_from_conversation")
    if role not in ("user", "assistant") or hidden or message.get("recipient", "all") != "all":
        return None
    if not isinstance(content, dict) or content.get("content_type") not in _TEXTS:
        return None
    parts = content.get("parts")
    texts = [part for part in parts if isinstance(part, str)] if isinstance(parts, list) else []
    return Said(role == "user", _CITATION.sub("", "\n".join(texts)).strip())
