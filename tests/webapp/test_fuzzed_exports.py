"""Exports with anything in place of anything: every one ends in a report, and what is kept is a conversation."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.webapp.test_assistant_exports import CHATGPT, CLAUDE
from tests.webapp.test_chat_exports import EVERY, ME, SAID, USERS, discord, messenger, slack, telegram
from tests.webapp.test_formats import ALPACA, CHAT, PROSE, SHAREGPT
from tests.webapp.uploads import check, rows, zipped

pytestmark = pytest.mark.slow

ODD = st.sampled_from(
    [None, True, -1, 0, 1e300, 10**17, "", " ", "\x00", "\ud83d", "1e999", "nan", [], {}, [[]], ["x"]]
)
DOCUMENTS: dict[str, Any] = {
    "telegram": telegram(*SAID),
    "account": {"chats": {"list": [telegram(*SAID)]}},
    "discord": discord(*SAID),
    "messenger": messenger(*SAID),
    "chatgpt": [CHATGPT, CHATGPT],
    "claude": [CLAUDE, CLAUDE],
    "slack": slack(*SAID),
    "alpaca": [ALPACA, ALPACA],
    "sharegpt": [SHAREGPT, SHAREGPT],
    "chat": [CHAT, CHAT],
    "nothing known": {"a": [1, {"b": 2}]},
}
TEXTS = {**{name: data for name, (_, data) in EVERY.items()}, "notes": f"# A\n\n{PROSE}\n\n{PROSE}"}


def ends_well(data: bytes | str) -> None:
    for me, voice in ((ME, "assistant"), (None, "me")):
        result = check(data, me, voice)  # type: ignore[arg-type]
        report = result.report
        json.dumps(report.as_json()).encode()
        assert "\\u0000" not in json.dumps(report.as_json())
        assert report.rows == report.good + report.bad
        assert report.error is not None or report.good
        for row in rows(result):
            spoken = [turn["role"] for turn in row["messages"] if turn["role"] != "system"]
            assert spoken == ["user", "assistant"] * (len(spoken) // 2)
            assert all(turn["content"].strip() for turn in row["messages"])


def spots(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(spot for key, each in inner for spot in spots(each, (*path, key)))]


def with_value(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    document = copy.copy(document)
    document[path[0]] = with_value(document[path[0]], path[1:], value)
    return document


@pytest.mark.parametrize("name", DOCUMENTS)
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_value_in_any_place(name: str, data: st.DataObject) -> None:
    document = DOCUMENTS[name]
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(spots(document)))
        document = with_value(document, path, data.draw(ODD))
    text = json.dumps(document)
    ends_well(text)
    if name == "slack":
        ends_well(zipped({"users.json": json.dumps(USERS), "c/1.json": text}))


@pytest.mark.parametrize("name", TEXTS)
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_bytes_in_any_place(name: str, data: st.DataObject) -> None:
    upload = TEXTS[name]
    content = upload.encode() if isinstance(upload, str) else upload
    at = data.draw(st.integers(0, len(content)))
    gone = data.draw(st.integers(0, 8))
    content = content[:at] + data.draw(st.binary(max_size=8)) + content[at + gone :]
    ends_well(content[: data.draw(st.integers(len(content) // 2, len(content)))] if gone > 4 else content)
