"""What WhatsApp itself writes into a chat, in the phone's language: notices in place of messages."""

import re

#: A message that was taken back.
_DELETED = """
This message was deleted
You deleted this message
Diese Nachricht wurde gelöscht
Du hast diese Nachricht gelöscht
Se eliminó este mensaje
Este mensaje fue eliminado
Eliminaste este mensaje
Mensagem apagada
Esta mensagem foi apagada
Essa mensagem foi apagada
Você apagou esta mensagem
Apagou esta mensagem
Ce message a été supprimé
Vous avez supprimé ce message
Questo messaggio è stato eliminato
Hai eliminato questo messaggio
Dit bericht is verwijderd
U hebt dit bericht verwijderd
Je hebt dit bericht verwijderd
Данное сообщение удалено
Это сообщение удалено
Сообщение удалено
Вы удалили это сообщение
Вы удалили данное сообщение
Bu mesaj silindi
Bu mesajı sildiniz
Ta wiadomość została usunięta
Usunięto tę wiadomość
تم حذف هذه الرسالة
لقد حذفت هذه الرسالة
यह संदेश हटा दिया गया था
यह मैसेज हटा दिया गया था
Pesan ini telah dihapus
Pesan ini dihapus
Anda menghapus pesan ini
このメッセージは削除されました
このメッセージを削除しました
삭제된 메시지입니다
삭제한 메시지입니다
此消息已删除
您已删除此消息
此訊息已刪除
您已刪除此訊息
"""

#: A picture, a sound or a call that the export leaves out; phones that do not use angle brackets for it.
_LEFT_OUT = """
image omitted|video omitted|audio omitted|sticker omitted|GIF omitted|document omitted|Contact card omitted
Bild weggelassen|Video weggelassen|Audio weggelassen|Sticker weggelassen|GIF weggelassen|Dokument weggelassen
imagen omitida|video omitido|audio omitido|sticker omitido|GIF omitido|documento omitido
imagem ocultada|vídeo omitido|áudio ocultado|figurinha omitida|documento omitido|imagem omitida|áudio omitido
image absente|vidéo absente|audio omis|sticker omis|GIF retiré|document manquant
immagine omessa|video omesso|audio omesso|sticker non incluso|GIF esclusa|documento omesso
afbeelding weggelaten|video weggelaten|audio weggelaten|sticker weggelaten|document weggelaten
изображение отсутствует|видео отсутствует|аудиофайл отсутствует|стикер отсутствует|документ отсутствует
görüntü dahil edilmedi|video dahil edilmedi|ses dahil edilmedi|Çıkartma dahil edilmedi|belge dahil edilmedi
pominięto grafikę|pominięto wideo|pominięto dźwięk
gambar tidak disertakan|video tidak disertakan|audio tidak disertakan|stiker tidak disertakan
تم إرفاق الصورة|الصورة غير مدرجة|الفيديو غير مدرج|الصوت غير مدرج|الملصق غير مدرج
画像は含まれていません|動画は含まれていません|音声は含まれていません|スタンプは含まれていません
이미지 생략됨|동영상 생략됨|음성 생략됨|스티커 생략됨|사진 생략됨
图像已忽略|视频已忽略|音频已忽略|贴图已忽略|忽略图片|忽略視訊|忽略音訊|忽略貼圖
Missed voice call|Missed video call|Verpasster Sprachanruf|Verpasster Videoanruf
Llamada perdida|Videollamada perdida|Ligação de voz perdida|Chamada de vídeo perdida|Chamada de voz perdida
Appel vocal manqué|Appel vidéo manqué|Chiamata vocale persa|Videochiamata persa|Gemiste spraakoproep
Пропущенный аудиозвонок|Пропущенный видеозвонок|Cevapsız sesli arama|Panggilan suara tak terjawab
null
"""

#: The notice that a chat begins with: "Messages and calls are end-to-end encrypted. …"
_MESSAGES = (
    "Messages|Nachrichten|Los mensajes|As mensagens|Les messages|I messaggi|De berichten|Berichten|Сообщения|Mesajlar"
    "|Wiadomości|Pesan|الرسائل|संदेश|मैसेज|メッセージ|메시지|消息|訊息"
)
_ENCRYPTED_IS = (
    "end-to-end encrypt|Ende-zu-Ende-verschlüsselt|cifrad[oa]s de extremo a extremo|criptografia de ponta a ponta"
    "|encriptad[oa]s ponto a ponto|chiffrés de bout en bout|crittografat[ie] end-to-end|end-to-end versleuteld"
    "|сквозным шифрованием|uçtan uca şifreli|w pełni szyfrowane|dienkripsi|terenkripsi|مشفرة تمامًا"
    "|एंड-टू-एंड एन्क्रिप्टेड|エンドツーエンド|종단간 암호화|端到端加密|端對端加密"
)
_ENCRYPTED = re.compile(rf"(?:{_MESSAGES}).{{0,80}}?(?:{_ENCRYPTED_IS}).{{0,300}}")
#: Of a whole message: whatever the language, media left out stand in angle brackets on Android.
_BRACKETED = re.compile(r"<[^<>\n]{3,60}>")
#: A file that came along: its name and a word in brackets (Android), or a word and its name in angle brackets (iOS).
_ATTACHED = re.compile(r"\S[^\n]{0,200}\.\w{2,5} \([^()\n]{3,40}\)")
_PLACE = re.compile(r"[^\n:]{0,40}:? ?https://maps\.google\.com/\?q=\S+")
_NOTICES = frozenset(
    phrase.casefold().strip() for phrase in re.split(r"[\n|]", _DELETED + _LEFT_OUT) if phrase.strip()
)
#: Behind a message that was changed later, in angle brackets.
_EDITED = frozenset(
    phrase.casefold()
    for phrase in re.split(
        r"\|",
        "This message was edited|Diese Nachricht wurde bearbeitet|Se editó este mensaje|Mensagem editada"
        "|Esta mensagem foi editada|Ce message a été modifié|Questo messaggio è stato modificato|Dit bericht is bewerkt"
        "|Сообщение изменено|Данное сообщение изменено|Bu mesaj düzenlendi|Wiadomość edytowana|تم تعديل هذه الرسالة"
        "|Pesan ini diedit|このメッセージは編集されました|수정된 메시지입니다|此消息已编辑|此訊息已編輯",
    )
)


def is_notice(text: str) -> bool:
    """Whether a message's whole text is WhatsApp's own."""
    return text.rstrip(" .。").casefold() in _NOTICES or any(
        pattern.fullmatch(text) for pattern in (_BRACKETED, _ATTACHED, _PLACE, _ENCRYPTED)
    )


def without_edit_mark(text: str) -> str:
    before, _, mark = text.rstrip().rpartition("<")
    return before.rstrip() if mark.rstrip(">.").casefold() in _EDITED else text
