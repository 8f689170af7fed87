"""Claude's export: an array of {"chat_messages": [{"sender": "human" | "assistant", "text", "content": […]}]}."""

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

NAME = "claude"

SIGNS = (frozenset({(ANY, "chat_messages")}),)
#: A conversation with its attachments.
MAX_BYTES = 8_000_000
_SENDERS = {"human": True, "assistant": False}


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
    messages = row.get("chat_messages")
    if not isinstance(messages, list):
        raise RowError("chat_messages", "not a list of messages", "Upload the export as Claude sent it.")
    said = []
    for index, message in enumerate(messages):
        sender = message.get("sender") if isinstance(message, dict) else None
        if not isinstance(sender, str) or sender not in _SENDERS:
            raise RowError(
                f"chat_messages[{index}].sender",
                "neither human nor assistant",
                "Upload the export as it came.",
            )
        said.append(Said(_SENDERS[sender], _text(message)))
    return said


def _text(message: dict[str, Any]) -> str:
    """The text parts of the content: `text` has the tools' words in between."""
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    texts = [
        part["text"]
        for part in parts
        if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
    ]
    whole = message.get("text")
    return "\n".join(texts).strip() or (whole.strip() if isinstance(whole, str) else "")
