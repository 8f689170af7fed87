"""Messenger, Instagram: {"participants", "messages": [{"sender_name", "timestamp_ms", "content"?}]}."""

import re
from collections.abc import Iterator
from functools import partial

from webapp.datasets.chats import conversations_of
from webapp.datasets.conversation import Conversation
from webapp.datasets.documents import Found, read
from webapp.datasets.faults import Bad, shown
from webapp.datasets.findings import Findings
from webapp.datasets.head import Head
from webapp.datasets.lines import MAX_LINE_BYTES
from webapp.datasets.mojibake import repair, repaired
from webapp.datasets.moments import unix_seconds
from webapp.datasets.scan import ANY
from webapp.datasets.transcript import Message
from webapp.datasets.upload import Asked, Upload

NAME = "messenger"

_MESSAGE = ("messages", ANY)
SIGNS = (frozenset({(*_MESSAGE, "sender_name"), (*_MESSAGE, "timestamp_ms")}),)
_SERVICE_KEYS = {"call_duration", "is_unsent_image_by_messenger_kid_parent", "users"}
_SERVICE_TYPES = ("Call", "Subscribe", "Unsubscribe")
#: Meta's own sentences in place of a message, in the account's language.
_OWN_SENTENCE = re.compile(
    r"(?:.{1,80} (?:sent an attachment|sent a photo|hat einen Anhang gesendet|envió un archivo adjunto"
    r"|enviou um anexo|a envoyé une pièce jointe|ha inviato un allegato|heeft een bijlage (?:verzonden|gestuurd)"
    r"|отправил(?:\(а\)|а)? вложение|bir ek gönderdi|mengirim lampiran|wysłał(?:\(a\)|a)? załącznik"
    r"|je poslal(?:/a)? přílohu)"
    r"|Reacted .{1,20} to your message ?|Hat mit .{1,20} auf deine Nachricht reagiert ?"
    r"|Reaccionó con .{1,20} a tu mensaje ?|Reagiu com .{1,20} à sua mensagem ?"
    r"|A réagi avec .{1,20} à votre message ?|Ha messo .{1,20} al tuo messaggio ?"
    r"|Liked a message|Le gustó un mensaje|Curtiu uma mensagem|A aimé un message|Gefällt eine Nachricht"
    r"|You (?:missed|called) .{1,80}|.{1,80} (?:missed your|called you)(?: .{1,40})?)\.?"
)


def fits(head: Head) -> bool:
    return head.has_any(SIGNS)


def conversations(upload: Upload, asked: Asked, findings: Findings) -> Iterator[Conversation | Bad]:
    yield from conversations_of(_messages(upload, findings), asked, findings)


def _messages(upload: Upload, findings: Findings) -> Iterator[Message | Bad]:
    make = partial(_message, findings=findings)
    for member in upload.members:
        yield from read(member, [_MESSAGE], MAX_LINE_BYTES, make)


def _message(found: Found, findings: Findings) -> Message | None:
    row = found.row
    if row.get("type") in _SERVICE_TYPES or _SERVICE_KEYS & set(row):
        findings.notes["service messages were left out"] += 1
        return None
    content, speaker = row.get("content"), row.get("sender_name")
    text = repair(content, findings.notes).strip() if isinstance(content, str) else ""
    if not text or not isinstance(speaker, str) or not speaker or _OWN_SENTENCE.fullmatch(text):
        findings.notes["messages of pictures, reactions and other things without text were left out"] += 1
        return None
    seconds = unix_seconds(row.get("timestamp_ms"), "timestamp_ms") / 1000
    # A long chat is in several files of one folder.
    chat = found.member.folder or found.member.entry
    return Message(chat, seconds, shown(repaired(speaker)), text, found.line)
