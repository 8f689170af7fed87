"""Talks with ChatGPT and Claude: what is on the page, in the voice that is asked for."""

import json
from typing import Any

import pytest

from tests.webapp.uploads import Talk, check, ids, talks, zipped
from webapp.datasets.upload import Voice


def node(parent: str | None, role: str, *parts: Any, **more: Any) -> dict[str, Any]:
    content = {"content_type": more.pop("content_type", "text"), "parts": list(parts)}
    message = {"author": {"role": role}, "content": content, "recipient": "all", "metadata": {}} | more
    return {"message": message, "parent": parent, "children": []}


def chatgpt(**nodes: dict[str, Any]) -> dict[str, Any]:
    return {"title": "t", "current_node": list(nodes)[-1], "mapping": nodes}


def claude(*said: tuple[str, str]) -> dict[str, Any]:
    messages = [
        {"uuid": str(at), "sender": sender, "text": text, "content": [], "created_at": "2024-05-01T10:00:00Z"}
        for at, (sender, text) in enumerate(said)
    ]
    return {"uuid": "c", "name": "n", "chat_messages": messages}


CHATGPT = chatgpt(
    root={"message": None, "parent": None, "children": []},
    hidden=node("root", "user", "about me", metadata={"is_visually_hidden_from_conversation": True}),
    system=node("hidden", "system", ""),
    q=node("system", "user", "Hi"),
    a=node("q", "assistant", "Hello!"),
    q2=node("a", "user", "Why?"),
    a2=node("q2", "assistant", "Because."),
)
CLAUDE = claude(("human", "Hi"), ("assistant", "Hello!"), ("human", "Why?"), ("assistant", "Because."))
AS_ASSISTANT: Talk = [("user", "Hi"), ("assistant", "Hello!"), ("user", "Why?"), ("assistant", "Because.")]
AS_ME: Talk = [("user", "Hello!"), ("assistant", "Why?")]


@pytest.mark.parametrize(("name", "talk"), [("chatgpt", CHATGPT), ("claude", CLAUDE)])
@pytest.mark.parametrize(("voice", "expected"), [("assistant", AS_ASSISTANT), ("me", AS_ME)])
@pytest.mark.parametrize("packed", [False, True])
def test_both_voices(name: str, talk: Any, voice: Voice, expected: Talk, packed: bool) -> None:
    data: bytes | str = json.dumps([talk])
    if packed:
        data = zipped({"conversations.json": data, "user.json": '{"id": "u"}', "chat.html": "<html>" + data})
    result = check(data, voice=voice)
    assert result.report.format == name
    assert talks(result) == [expected]
    assert ids(result) == ["1"]
    assert result.report.findings.facts == [
        f"1 conversations with an assistant. voice={voice}: the model learns to be "
        + ("you, as you write." if voice == "me" else "the assistant, as it answers."),
        "voice=assistant: 2 messages, 7 characters each on average.",
        "voice=me: 2 messages, 3 characters each on average.",
    ]


@pytest.mark.parametrize("talk", [CHATGPT, CLAUDE])
def test_nobody_is_learned_before_somebody_says_who(talk: Any) -> None:
    result = check(json.dumps([talk] * 5), voice=None)
    report = result.report.as_json()
    assert (report["code"], report["good"], report["voice"]) == ("voice_needed", 0, None)
    assert report["voices"] == {
        "me": [{"before": "Hello!", "answer": "Why?"}] * 3,
        "assistant": [{"before": "Hi", "answer": "Hello!"}] * 3,
    }
    assert [fact.partition(":")[0] for fact in report["facts"][1:]] == ["voice=assistant", "voice=me"]
    assert result.conversations.size == 0


def test_examples_are_short_and_fit_a_database() -> None:
    talk = claude(("human", "a\x00\ud83d\n\nb"), ("assistant", "long " * 100_000))
    [shown] = check(json.dumps([talk]), voice=None).report.as_json()["voices"]["assistant"]
    assert shown["before"] == "a? b"
    assert len(shown["answer"]) == 160
    assert shown["answer"].endswith("…")


def test_edited_branches_are_left_behind() -> None:
    talk = chatgpt(
        root={"message": None, "parent": None, "children": ["old", "q"]},
        old=node("root", "user", "A first try"),
        old_answer=node("old", "assistant", "An old answer"),
        q=node("root", "user", "Hi"),
        a=node("q", "assistant", "Hello!"),
    )
    assert talks(check(json.dumps([talk]))) == [[("user", "Hi"), ("assistant", "Hello!")]]


def test_tools_thoughts_images_and_citations_are_not_said() -> None:
    talk = chatgpt(
        q=node(None, "user", {"asset_pointer": "file://1"}, "What is this?", content_type="multimodal_text"),
        thought=node("q", "assistant", "hm", content_type="thoughts"),
        call=node("thought", "assistant", "search()", recipient="browser", content_type="code"),
        tool=node("call", "tool", "result"),
        a=node("tool", "assistant", "A lamp\ue200cite\ue202turn0search1\ue201."),
    )
    assert talks(check(json.dumps([talk]))) == [[("user", "What is this?"), ("assistant", "A lamp.")]]


def test_shards_are_one_export() -> None:
    files = {f"conversations-{at:03}.json": json.dumps([CHATGPT, CHATGPT]) for at in range(3)}
    assert ids(check(zipped(files))) == ["1", "2", "3", "4", "5", "6"]


def test_claude_says_what_is_in_its_content() -> None:
    talk = claude(("human", "Hi"), ("assistant", "searching… Hello!"))
    talk["chat_messages"][1]["content"] = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "tool_use", "input": {}},
        {"type": "text", "text": "Hello!"},
    ]
    assert talks(check(json.dumps([talk]))) == [[("user", "Hi"), ("assistant", "Hello!")]]


@pytest.mark.parametrize(
    ("talk", "field"),
    [
        (CHATGPT | {"mapping": []}, "mapping"),
        (CHATGPT | {"current_node": "gone"}, "current_node"),
        (CHATGPT | {"current_node": None}, "current_node"),
        (chatgpt(a=node("b", "user", "x"), b=node("a", "assistant", "y")), "mapping"),
        (CLAUDE | {"chat_messages": 7}, "chat_messages"),
        (CLAUDE | {"chat_messages": [{"sender": ["human"], "text": "x"}]}, "chat_messages[0].sender"),
        (CLAUDE | {"chat_messages": ["x"]}, "chat_messages[0].sender"),
    ],
)
def test_bad_conversations_beside_good_ones(talk: Any, field: str) -> None:
    good = CLAUDE if "chat_messages" in talk else CHATGPT
    result = check(json.dumps([good, talk, good]))
    assert [bad["field"] for bad in result.report.problems] == [field]
    assert result.report.good == 2


def test_a_conversation_without_an_answer() -> None:
    result = check(json.dumps([CLAUDE, claude(("human", "Hi"), ("assistant", " "))]))
    assert result.report.good == 1
    assert any("without an answer" in note for note in result.report.as_json()["notes"])
