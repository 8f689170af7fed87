"""WhatsApp's text in the languages of phones: dates, hours, and the lines that it writes itself."""

import pytest

from tests.webapp.uploads import check, talks
from webapp.datasets.formats.whatsapp_dates import Orders, stamp

#: The same two minutes, 10:04 and 22:05 on 13 May 2024, as phones of these languages write them.
DAYS = {
    "English (US)": ("5/13/24, 10:04\u202fAM - ", "5/13/24, 10:05\u202fPM - "),
    "English (UK)": ("13/05/2024, 10:04 am - ", "13/05/2024, 10:05 pm - "),
    "English, iPhone": ("[13/05/2024, 10:04:00 AM] ", "[13/05/2024, 10:05:00 PM] "),
    "German": ("13.05.24, 10:04 - ", "13.05.24, 22:05 - "),
    "German, iPhone": ("[13.05.24, 10:04:00] ", "[13.05.24, 22:05:00] "),
    "Spanish": ("13/5/24, 10:04 a.\u00a0m. - ", "13/5/24, 10:05 p.\u00a0m. - "),
    "Portuguese": ("13/05/2024 10:04 - ", "13/05/2024 22:05 - "),
    "French": ("13/05/2024 à 10:04 - ", "13/05/2024 à 22:05 - "),
    "Italian": ("13/05/24, 10:04 - ", "13/05/24, 22:05 - "),
    "Dutch": ("13-05-2024 10:04 - ", "13-05-2024 22:05 - "),
    "Russian": ("13.05.2024, 10:04 - ", "13.05.2024, 22:05 - "),
    "Turkish": ("13.05.2024 ÖÖ 10:04 - ", "13.05.2024 ÖS 10:05 - "),
    "Finnish": ("13.5.2024 klo 10.04 - ", "13.5.2024 klo 22.05 - "),
    "Hungarian": ("2024. 05. 13. 10:04 - ", "2024. 05. 13. 22:05 - "),
    "Arabic": (
        "\u200f١٣\u200f/٥\u200f/٢٠٢٤، ١٠:٠٤ ص - ",
        "\u200f١٣\u200f/٥\u200f/٢٠٢٤، ١٠:٠٥ م - ",
    ),
    "Hindi": ("13/05/24, 10:04 पूर्वाह्न - ", "13/05/24, 10:05 अपराह्न - "),
    "Indonesian": ("13/05/24 10.04 - ", "13/05/24 22.05 - "),
    "Vietnamese": ("10:04, 13/05/2024 - ", "22:05, 13/05/2024 - "),
    "Japanese": ("2024/05/13 10:04 - ", "2024/05/13 22:05 - "),
    "Korean": ("2024년 5월 13일 오전 10:04 - ", "2024년 5월 13일 오후 10:05 - "),
    "Korean, iPhone": ("[2024. 5. 13. 오전 10:04:00] ", "[2024. 5. 13. 오후 10:05:00] "),
    "Chinese": ("2024/5/13 上午10:04 - ", "2024/5/13 下午10:05 - "),
    "Swedish": ("2024-05-13 10:04 - ", "2024-05-13 22:05 - "),
    "Bulgarian": ("13.05.2024 г., 10:04 - ", "13.05.2024 г., 22:05 - "),
}


@pytest.mark.parametrize("language", DAYS)
def test_days_and_hours(language: str) -> None:
    """Twelve hours and a minute lie between them, so the chat has two pieces."""
    morning, evening = DAYS[language]
    text = f"{morning}Ann: a\n{morning}Me: b\n{evening}Ann: c\n{evening}Me: d\n"
    result = check(text, "Me")
    assert result.report.format == "whatsapp"
    assert talks(result) == [
        [("user", "a"), ("assistant", "b")],
        [("user", "c"), ("assistant", "d")],
    ]
    found = [
        stamp(each.strip("[]- ").replace("\u200f", "").replace("\u202f", " ").replace("\u00a0", " "))
        for each in (morning, evening)
    ]
    orders = Orders()
    for each in found:
        assert each is not None
        orders.see(each)
    seconds = [each.seconds(orders.best()) for each in found if each]
    assert seconds == [1715594640.0, 1715637900.0]


#: Of each language: media left out, and a message taken back.
OWN = {
    "English": ("<Media omitted>", "This message was deleted"),
    "German": ("<Medien ausgeschlossen>", "Diese Nachricht wurde gelöscht."),
    "Spanish": ("<Multimedia omitido>", "Se eliminó este mensaje."),
    "Portuguese": ("<Mídia oculta>", "Mensagem apagada"),
    "French": ("<Médias omis>", "Ce message a été supprimé."),
    "Italian": ("<Media omessi>", "Questo messaggio è stato eliminato"),
    "Dutch": ("<Media weggelaten>", "Dit bericht is verwijderd"),
    "Russian": ("<Без медиафайлов>", "Данное сообщение удалено"),
    "Turkish": ("<Medya dahil edilmedi>", "Bu mesaj silindi"),
    "Arabic": ("<تم استبعاد الوسائط>", "تم حذف هذه الرسالة"),
    "Hindi": ("<मीडिया के बिना>", "यह संदेश हटा दिया गया था"),
    "Indonesian": ("<Media tidak disertakan>", "Pesan ini telah dihapus"),
    "Japanese": ("<メディアは含まれていません>", "このメッセージは削除されました"),
    "Korean": ("사진 생략됨", "삭제된 메시지입니다."),
    "Chinese": ("<省略多媒体文件>", "此消息已删除"),
    "a file": ("IMG-20240513-WA0001.jpg (file attached)", "null"),
    "a place": ("location: https://maps.google.com/?q=1.5,2.5", "Missed voice call"),
}


@pytest.mark.parametrize("language", OWN)
def test_what_whatsapp_writes_itself(language: str) -> None:
    day = "13/05/2024, 10:04 - "
    media, deleted = OWN[language]
    text = f"{day}Ann: Hi\n{day}Ann: \u200e{media}\n{day}Ann: {media}\n{day}Me: {deleted}\n{day}Me: Hello\n"
    assert talks(check(text, "Me")) == [[("user", "Hi"), ("assistant", "Hello")]]


@pytest.mark.parametrize(
    "line",
    [
        "Messages and calls are end-to-end encrypted. Tap to learn more.",
        "Nachrichten und Anrufe sind Ende-zu-Ende-verschlüsselt.",
        'Ann created group "Our: group"',
        'Ann changed the subject from "a: b" to "c: d"',
        "Ann hat die Gruppenbeschreibung geändert.",
        "Ann: Messages and calls are end-to-end encrypted. No one outside of this chat can read them.",
        "Ann: Los mensajes y las llamadas están cifrados de extremo a extremo.",
    ],
)
def test_lines_about_the_chat(line: str) -> None:
    day = "13/05/2024, 10:04 - "
    result = check(f"{day}{line}\n{day}Ann: Hi\n{day}Me: Hello\n", "Me")
    assert talks(result) == [[("user", "Hi"), ("assistant", "Hello")]]
    assert set(result.report.findings.speakers) == {"Ann", "Me"}


@pytest.mark.parametrize(
    "mark", ["<This message was edited>", "\u200e<Diese Nachricht wurde bearbeitet.>", "<Сообщение изменено>"]
)
def test_edited_messages_keep_their_words(mark: str) -> None:
    day = "13/05/2024, 10:04 - "
    assert talks(check(f"{day}Ann: Hi\n{day}Me: a < b {mark}\n", "Me"))[0][1] == ("assistant", "a < b")


@pytest.mark.parametrize("text", ["end-to-end encrypted is a good thing", "look: <3", "at 10:04 - no: later"])
def test_words_of_people_stay(text: str) -> None:
    day = "13/05/2024, 10:04 - "
    assert talks(check(f"{day}Ann: {text}\n{day}Me: yes\n", "Me"))[0][0] == ("user", text)


def test_messages_of_several_lines() -> None:
    day = "13/05/2024, 10:04 - "
    text = f"{day}Ann: one\n\n3 eggs\n12/2 - half\n{day}Me: yes\n"
    assert talks(check(text, "Me"))[0][0] == ("user", "one\n\n3 eggs\n12/2 - half")


def test_the_order_of_day_and_month_is_the_one_in_which_time_runs_on() -> None:
    """No number is above 12: as month first, each next day is later; as day first, they would run back."""
    days = ["1/12/24", "2/11/24", "3/10/24"]
    orders = Orders()
    for day in days:
        found = stamp(f"{day}, 10:04")
        assert found is not None
        orders.see(found)
    assert orders.best() == "mdy"


def test_a_day_that_does_not_exist() -> None:
    good = "13/05/2024, 10:04 - Ann: a\n13/05/2024, 10:04 - Me: b\n"
    result = check(good + "31/02/2024, 10:04 - Ann: c\n", "Me")
    [problem] = result.report.problems
    assert (problem["line"], problem["reason"]) == (3, "no such day")
    assert result.report.good == 1
