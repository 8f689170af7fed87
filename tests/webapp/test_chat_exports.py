"""People's chats: who 'me' is, bursts, silences, and what the apps themselves write."""

import json
from typing import Any

import pytest

from tests.webapp.uploads import check, ids, talks, zipped
from webapp.datasets.chats import PIECE_CHARACTERS

ME = "Jürgen"
PAIR = [("user", "Hi"), ("assistant", "Hello 😀")]


def android(*said: tuple[str, str], stamp: str = "01/05/2024, 10:{:02} - ") -> str:
    """A minute between two messages; an empty name for WhatsApp's own lines."""
    return "".join(
        stamp.format(minute) + (f"{name}: {text}\n" if name else f"{text}\n")
        for minute, (name, text) in enumerate(said)
    )


def telegram(*said: Any, **chat: Any) -> dict[str, Any]:
    messages = [
        {
            "id": at,
            "type": "message",
            "date_unixtime": str(1_700_000_000 + 60 * at),
            "from": name,
            "text": text,
        }
        for at, (name, text) in enumerate(said)
    ]
    return {"name": "Ann", "type": "personal_chat", "id": 1, "messages": messages} | chat


def discord(*said: tuple[str, str], **author: Any) -> dict[str, Any]:
    messages = [
        {
            "id": str(at),
            "type": "Default",
            "timestamp": f"2024-05-01T10:{at:02}:00.123+02:00",
            "content": text,
            "author": {"id": name, "name": name, "isBot": False} | author,
        }
        for at, (name, text) in enumerate(said)
    ]
    return {"guild": {"name": "G"}, "channel": {"name": "c"}, "messages": messages, "messageCount": len(said)}


def messenger(*said: tuple[str, str]) -> dict[str, Any]:
    """Newest first, and each byte of UTF-8 a character of its own."""
    messages = [
        {
            "sender_name": name.encode().decode("latin-1"),
            "timestamp_ms": 1_700_000_000_000 + 60_000 * at,
            "content": text.encode().decode("latin-1"),
        }
        for at, (name, text) in enumerate(said)
    ]
    return {"participants": [{"name": "Ann"}], "messages": messages[::-1], "title": "Ann"}


def slack(*said: tuple[str, str], **more: Any) -> list[dict[str, Any]]:
    return [
        {"type": "message", "user": user, "text": text, "ts": f"{1_700_000_000 + 60 * at}.000100"} | more
        for at, (user, text) in enumerate(said)
    ]


SAID = (("Ann", "Hi"), (ME, "Hello 😀"))
USERS = [
    {"id": "U1", "profile": {"real_name": "Ann", "display_name": ""}},
    {"id": "U2", "profile": {"real_name": "J. M.", "display_name": ME}},
]
SLACK_SAID = (("U1", "Hi"), ("U2", "Hello 😀"))
IPHONE = (
    "\u200e[01.05.24, 10:00:00] Ann: \u200eMessages and calls are end-to-end encrypted.\n"
    f"[01.05.24, 10:00:01] Ann: Hi\n\u200e[01.05.24, 10:00:02] {ME}: \u200e<attached: 1.jpg>\n"
    f"[01.05.24, 10:01:00] \u202a{ME}\u202c: Hello 😀\n"
)
EVERY: dict[str, tuple[str, bytes | str]] = {
    "whatsapp, android": ("whatsapp", android(*SAID)),
    "whatsapp, iphone": ("whatsapp", IPHONE),
    "whatsapp, zip": ("whatsapp", zipped({"_chat.txt": IPHONE, "1.jpg": b"\xff\xd8\xff\x00" * 99})),
    "signal": ("signal", f"[2024-05-01, 10:00] Ann: Hi\n[2024-05-01, 10:01] {ME}: Hello 😀\n"),
    "telegram": ("telegram", json.dumps(telegram(*SAID))),
    "telegram, pretty": ("telegram", json.dumps(telegram(*SAID), indent=1, ensure_ascii=False)),
    "telegram, account": ("telegram", json.dumps({"about": "", "chats": {"list": [telegram(*SAID)]}})),
    "telegram, zip": ("telegram", zipped({"DataExport/result.json": json.dumps(telegram(*SAID))})),
    "discord": ("discord", json.dumps(discord(*SAID))),
    "messenger": ("messenger", json.dumps(messenger(*SAID))),
    "messenger, zip": (
        "messenger",
        zipped({"messages/inbox/ann_1/message_1.json": json.dumps(messenger(*SAID))}),
    ),
    "slack": (
        "slack",
        zipped({"users.json": json.dumps(USERS), "general/2024-05-01.json": json.dumps(slack(*SLACK_SAID))}),
    ),
}


@pytest.mark.parametrize(("name", "data"), EVERY.values(), ids=EVERY.keys())
def test_every_app(name: str, data: bytes | str) -> None:
    result = check(data, ME)
    assert result.report.format == name
    assert talks(result) == [PAIR]
    assert ids(result) == ["1.1"]
    report = result.report.as_json()
    assert report["me"] == ME
    assert sorted(report["speakers"], key=lambda one: one["name"]) == [
        {"name": "Ann", "messages": 1},
        {"name": ME, "messages": 1},
    ]
    assert report["facts"][0] == "2 messages by 2 people in 1 chats."


@pytest.mark.parametrize(("name", "data"), EVERY.values(), ids=EVERY.keys())
def test_without_me_the_report_says_who_there_is(name: str, data: bytes | str) -> None:
    report = check(data).report.as_json()
    assert report["code"] == "speaker_needed"
    assert "'me'" in report["error"]
    assert {one["name"] for one in report["speakers"]} == {"Ann", ME}
    assert "Ann" not in report["error"]


@pytest.mark.parametrize("me", [" jürgen ", "JÜRGEN", "Ju\u0308rgen"])
def test_a_name_may_be_typed_a_little_differently(me: str) -> None:
    assert talks(check(android(*SAID), me)) == [PAIR]


def test_a_name_that_nobody_has() -> None:
    report = check(android(*SAID), "Bob").report
    assert (report.code, report.good) == ("speaker_unknown", 0)


def test_one_person_alone() -> None:
    assert check(android(("Ann", "a"), ("Ann", "b")), "Ann").report.code == "one_speaker"


def test_bursts_are_turns() -> None:
    result = check(android(("Ann", "Hi"), ("Ann", "there?"), (ME, "yes"), (ME, "soon"), ("Ann", "ok")), ME)
    assert talks(result) == [[("user", "Hi\nthere?"), ("assistant", "yes\nsoon")]]
    notes = result.report.as_json()["notes"]
    assert "2 × messages in a row by one side were joined into one turn" in notes
    assert "1 × a last user message without an answer was left out" in notes


def test_a_long_silence_is_an_end() -> None:
    text = (
        "01/05/2024, 08:00 - Ann: a\n01/05/2024, 13:59 - Me: b\n"  # 5:59
        "01/05/2024, 20:00 - Ann: c\n01/05/2024, 20:01 - Me: d\n"  # 6:01
    )
    result = check(text, "Me")
    assert talks(result) == [
        [("user", "a"), ("assistant", "b")],
        [("user", "c"), ("assistant", "d")],
    ]
    assert ids(result) == ["1.1", "1.2"], "both pieces say which chat they come from"


def test_a_chat_that_goes_on_is_cut_between_an_answer_and_the_next_question() -> None:
    said = [(("Ann", ME)[at % 2], f"{at} " + "x" * 490) for at in range(40)]
    text = "".join(f"01/05/2024, 10:{at:02} - {name}: {what}\n" for at, (name, what) in enumerate(said))
    result = check(f"{text}02/05/2024, 10:00 - Ann: Hi\n02/05/2024, 10:01 - {ME}: Hello\n", ME)
    *pieces, _ = talks(result)
    assert ids(result) == [*(f"1.1.{at}" for at in range(1, len(pieces) + 1)), "1.2"], (
        "pieces of one conversation"
    )
    assert [turn[1].split()[0] for piece in pieces for turn in piece] == [str(at) for at in range(40)]
    assert len(pieces) > 3
    for piece in pieces:
        assert (piece[0][0], piece[-1][0]) == ("user", "assistant")
        assert sum(len(text) for _, text in piece) < PIECE_CHARACTERS + 1_100


def test_a_first_message_of_mine_answers_nothing() -> None:
    result = check(android((ME, "Anyone?"), ("Ann", "yes"), (ME, "good")), ME)
    assert talks(result) == [[("user", "yes"), ("assistant", "good")]]
    assert any("answer nothing" in note for note in result.report.as_json()["notes"])


def test_groups_say_who_speaks_and_pairs_do_not() -> None:
    said = (("Ann", "Hi"), ("Ann", "all"), ("Bob", "Hey"), (ME, "Hello"))
    assert talks(check(android(*said), ME)) == [[("user", "Ann: Hi\nall\nBob: Hey"), ("assistant", "Hello")]]


def test_chats_of_others_are_no_part_of_it() -> None:
    others = telegram(("Ann", "Hi"), ("Bob", "Hey"))
    account = {"chats": {"list": [others, telegram(*SAID), telegram(("Cy", "1"), (ME, "2"))]}}
    result = check(json.dumps(account), ME)
    assert talks(result) == [PAIR, [("user", "1"), ("assistant", "2")]]
    assert ids(result) == ["2.1", "3.1"], "two chats are two sources"


def test_telegram_texts_and_services() -> None:
    chat = telegram(
        ("Ann", ["See ", {"type": "link", "text": "https://a.example"}, {"type": "bold", "text": "!"}]),
        (ME, "ok"),
        ("Ann", ""),
        (ME, "photo's caption"),
    )
    chat["messages"][1:1] = [
        {"id": 9, "type": "service", "date_unixtime": "1700000001", "actor": "Ann", "action": "call"},
        chat["messages"][0] | {"forwarded_from": "Cy", "text": "not hers"},
        chat["messages"][0] | {"date_unixtime": "soon"},
        chat["messages"][0] | {"text": 7},
    ]
    result = check(json.dumps(chat), ME)
    assert talks(result) == [[("user", "See https://a.example!"), ("assistant", "ok\nphoto's caption")]]
    assert [bad["field"] for bad in result.report.problems] == ["date_unixtime", "text"]
    notes = " ".join(result.report.as_json()["notes"])
    assert "service" in notes
    assert "forwarded" in notes


def test_telegram_after_a_long_list_of_contacts() -> None:
    """Whole-account exports begin with other things."""
    contacts = {"list": [{"first_name": "x" * 50, "phone": "1"}] * 3_000}
    account = {"contacts": contacts, "frequent": {}, "chats": {"list": [telegram(*SAID)]}}
    assert talks(check(json.dumps(account), ME)) == [PAIR]


def test_a_deleted_account_still_speaks() -> None:
    chat = telegram((None, "Hi"), (ME, "Hello"))
    chat["messages"][0]["from_id"] = "user77"
    assert check(json.dumps(chat)).report.findings.speakers == {"user77": 1, ME: 1}


def test_discord_bots_and_services() -> None:
    chat = discord(*SAID)
    chat["messages"][1:1] = discord(("Robot", "beep"), isBot=True)["messages"] + [
        chat["messages"][0] | {"type": "ChannelPinnedMessage"},
        chat["messages"][0] | {"timestamp": "yesterday"},
        chat["messages"][0] | {"author": None},
    ]
    result = check(json.dumps(chat), ME)
    assert talks(result) == [PAIR]
    assert [bad["field"] for bad in result.report.problems] == ["timestamp", "author.name"]


def test_messenger_is_turned_round_and_repaired() -> None:
    said = (("Ann", "naïve – wörtlich"), (ME, "日本 😀"), ("Ann", "Ann sent an attachment."), (ME, "ça"))
    chat = messenger(*said)
    # Of one moment, the newest first as everywhere.
    chat["messages"][0]["timestamp_ms"] = chat["messages"][1]["timestamp_ms"] = 1_700_000_000_000 + 90_000
    chat["messages"].append({"sender_name": "Ann", "timestamp_ms": 1, "photos": [{"uri": "x"}]})
    chat["messages"].append({"sender_name": "Ann", "timestamp_ms": 2, "content": "x", "call_duration": 9})
    assert talks(check(json.dumps(chat), ME)) == [
        [("user", "naïve – wörtlich"), ("assistant", "日本 😀\nça")],
    ]


def test_messages_that_are_well_encoded_stay() -> None:
    chat = messenger(("Ann", "x"), (ME, "y"))
    for message, text in zip(chat["messages"], ("été", "日本"), strict=True):
        message["content"] = text
    assert talks(check(json.dumps(chat), ME)) == [[("user", "日本"), ("assistant", "été")]]


def test_a_meta_archive_of_several_chats_and_files() -> None:
    early, late = messenger(("Ann", "1"), (ME, "2")), messenger(("Ann", "3"), (ME, "4"))
    for message in late["messages"]:
        message["timestamp_ms"] += 600_000
    archive = {
        "your_activity/messages/inbox/ann_1/message_1.json": json.dumps(late),
        "your_activity/messages/inbox/ann_1/message_2.json": json.dumps(early),
        "your_activity/messages/inbox/cy_2/message_1.json": json.dumps(messenger(("Cy", "5"), (ME, "6"))),
        "your_activity/messages/inbox/ann_1/photos/1.jpg": b"\xff\xd8",
        "personal_information/profile.json": '{"profile": {"name": "x"}}',
    }
    result = check(zipped(archive), ME)
    assert talks(result) == [
        [("user", "1"), ("assistant", "2"), ("user", "3"), ("assistant", "4")],
        [("user", "5"), ("assistant", "6")],
    ]
    assert ids(result) == ["1.1", "2.1"]


def test_slack_marks_threads_and_services() -> None:
    channel = slack(
        ("U1", "&lt;b&gt; <@U2> see <https://a.example|this> in <#C1|general> <!here>"),
        ("U2", "ok"),
        ("U1", "joined"),
        ("U1", "a thread"),
        ("U2", "in the thread"),
    )
    channel[2]["subtype"] = "channel_join"
    for message in channel[3:]:
        message["thread_ts"] = channel[3]["ts"]
    data = zipped(
        {
            "channels.json": json.dumps([{"id": "C1", "name": "general", "members": []}]),
            "users.json": json.dumps(USERS),
            "general/2024-05-01.json": json.dumps(channel),
        }
    )
    assert talks(check(data, ME)) == [
        [("user", f"<b> @{ME} see this in #general @here"), ("assistant", "ok")],
        [("user", "a thread"), ("assistant", "in the thread")],
    ]


def test_reports_of_chats_hold_no_content() -> None:
    secret = "my sister's address"
    chat = telegram(("Ann", secret), (ME, secret), ("Ann", [7, secret]))
    chat["messages"][2]["date_unixtime"] = secret
    report = json.dumps(check(json.dumps(chat), ME).report.as_json())
    assert "sister" not in report
