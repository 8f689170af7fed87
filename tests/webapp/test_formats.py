"""Rows of every format, and how formats are told apart: by content, never by a name."""

import json
from typing import Any

import pytest

from tests.webapp.uploads import check, ids, rows, talks, zipped

ALPACA = {"instruction": "Translate.", "input": "Hallo", "output": "Hello"}
SHAREGPT = {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}
CHAT = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}
DPO = {
    "input": {"messages": [{"role": "user", "content": "q"}]},
    "preferred_output": [{"role": "assistant", "content": "good"}],
    "non_preferred_output": [{"role": "assistant", "content": "bad"}],
}
PROSE = "We kept the lamp burning all night, though nobody came past. " * 6


def lines(*said: Any) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in said)


@pytest.mark.parametrize(
    ("name", "row"),
    [("alpaca", ALPACA), ("sharegpt", SHAREGPT), ("openai_chat", CHAT), ("preferences", DPO)],
)
@pytest.mark.parametrize("shape", ["lines", "an array", "a pretty array", "a BOM", "a zip", "CRLF"])
def test_rows_in_every_shape(name: str, row: dict[str, Any], shape: str) -> None:
    data = {
        "lines": lines(row, row),
        "an array": json.dumps([row, row]),
        "a pretty array": json.dumps([row, row], indent=2),
        "a BOM": "\ufeff" + json.dumps([row, row]),
        "a zip": zipped({"any/name.bin": lines(row, row)}),
        "CRLF": lines(row, row).replace("\n", "\r\n"),
    }[shape]
    report = check(data).report
    assert (report.format, report.good, report.bad, report.error) == (name, 2, 0, None)


def test_alpaca() -> None:
    row = ALPACA | {"system": "Be brief.", "history": [["q1", "a1"]]}
    assert talks(result := check(lines(row)))[0] == [
        ("system", "Be brief."),
        ("user", "q1"),
        ("assistant", "a1"),
        ("user", "Translate.\nHallo"),
        ("assistant", "Hello"),
    ]
    assert [turn.get("weight") for turn in rows(result)[0]["messages"]] == [None, None, 0, None, 1]


def test_sharegpt_with_tools() -> None:
    row = {
        "system": "Be brief.",
        "conversations": [
            {"from": "human", "value": "Weather?"},
            {"from": "function_call", "value": '{"name": "weather", "arguments": {"city": "Oslo"}}'},
            {"from": "observation", "value": "rain"},
            {"from": "gpt", "value": "It rains."},
        ],
    }
    assert talks(check(lines(row)))[0] == [
        ("system", "Be brief."),
        ("user", "Weather?"),
        ("assistant", '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'),
        ("user", "<tool_response>\nrain\n</tool_response>"),
        ("assistant", "It rains."),
    ]


@pytest.mark.parametrize(
    ("good", "row", "field", "reason"),
    [
        (ALPACA, ALPACA | {"output": ""}, "output", "empty"),
        (ALPACA, ALPACA | {"input": 7}, "input", "not text"),
        (ALPACA, ALPACA | {"history": "x"}, "history", "not a list"),
        (ALPACA, ALPACA | {"history": [["q"]]}, "history[0]", "not a question"),
        (ALPACA, ALPACA | {"prompt": "x"}, "prompt", "both"),
        (ALPACA, SHAREGPT, "line", "sharegpt"),
        (SHAREGPT, {"conversations": []}, "conversations", "not a list"),
        (SHAREGPT, {"conversations": ["q"]}, "conversations[0]", "not an object"),
        (SHAREGPT, {"conversations": [{"from": "x", "value": "y"}]}, "conversations[0].from", "speaker"),
        (SHAREGPT, {"conversations": [{"from": "gpt", "value": 1}]}, "conversations[0].value", "not text"),
        (
            SHAREGPT,
            {"conversations": [{"from": "function_call", "value": "x"}]},
            "conversations[0].value",
            "not a function",
        ),
        (SHAREGPT, SHAREGPT | {"messages": []}, "messages", "both"),
        (DPO, CHAT, "line", "openai_chat"),
        (CHAT, DPO, "line", "preferences"),
    ],
)
def test_bad_rows(good: Any, row: Any, field: str, reason: str) -> None:
    result = check(lines(good, row, good))
    [problem] = result.report.problems
    assert (problem["line"], problem["field"]) == (2, field)
    assert reason in problem["reason"]
    assert ids(result) == ["1", "3"]


def test_a_bad_element_of_an_array_costs_itself_alone() -> None:
    good = json.dumps(ALPACA)
    data = f'[\n{good},\n{{"instruction": NaN}},\n{{"a": 1, "a": 2}},\n"text",\n{good.replace("Hallo", "x")}\n]\n'
    result = check(data)
    assert [(bad["line"], bad["reason"]) for bad in result.report.problems] == [
        (3, "NaN is not JSON"),
        (4, "the same key twice"),
        (5, "not a JSON object"),
    ]
    assert ids(result) == ["2", "6"]


@pytest.mark.parametrize("end", ['{"instruction": "Tra', "", '{"instruction": "x"} {', "]]", "] x"])
def test_an_array_that_breaks_keeps_what_came_before(end: str) -> None:
    result = check(f"[{json.dumps(ALPACA)},\n{end}")
    assert result.report.good == 1
    assert result.report.bad >= 1
    assert any("cannot be read" in bad["reason"] for bad in result.report.problems)


def test_notes_are_passages() -> None:
    text = f"# My winters\n\n{PROSE}\n\n{PROSE}{PROSE}{PROSE}\n\n## Fog\n{PROSE}\n"
    result = check(text)
    assert result.report.format == "notes"
    said = talks(result)
    assert said[0] == [("user", "My winters"), ("assistant", PROSE.strip())]
    assert said[1][0] == ("user", PROSE.strip())
    assert said[-1] == [("user", "Fog"), ("assistant", PROSE.strip())]
    assert ids(result) == ["2.1", "2.2", "3.1"], "passages of one section share their source"
    assert all(len(content) <= 1200 for talk in said for _, content in talk)


@pytest.mark.parametrize(
    ("data", "advice"),
    [
        ("too short to learn from", "No line of this file"),
        ("question,answer,by\n" + "what,that,me\n" * 40, "table"),
        ("<!DOCTYPE html><html><body>" + PROSE, "Machine-readable JSON"),
        (zipped({"messages.html": "<html>" + PROSE}), "Machine-readable JSON"),
        (zipped({"photo.jpg": b"\xff\xd8\xff\xe0" * 400}), "ZIP"),
        ("[1, 2, 3]", "No line of this file"),
    ],
)
def test_files_that_are_something_else(data: bytes | str, advice: str) -> None:
    report = check(data).report
    assert advice in str(report.error)
    assert report.good == 0


def test_repeated_rows_are_kept_and_said() -> None:
    again = {"messages": [{"role": "user", "content": " Q!"}, {"role": "assistant", "content": "A"}]}
    other = {"messages": [{"role": "user", "content": "A"}, {"role": "assistant", "content": "q"}]}
    result = check(lines(CHAT, other, again, CHAT))
    report = result.report.as_json()
    assert report["duplicates"] == {
        "rows": 2,
        "listed": [{"id": "3", "line": 3, "same_as": 1}, {"id": "4", "line": 4, "same_as": 1}],
    }
    assert any(note.startswith("2 × a row says what an earlier one says") for note in report["notes"])
    assert result.report.good == 4


def test_emoji_are_no_duplicates_of_each_other() -> None:
    said = [
        {"messages": [{"role": "user", "content": face}, {"role": "assistant", "content": face}]}
        for face in "😀🎉"
    ]
    assert check(lines(*said)).report.duplicates.count == 0


def test_what_a_database_cannot_hold_is_not_in_a_report() -> None:
    """PostgreSQL stores neither NUL nor half a character, and both may stand in a key."""
    bad = '{"messages": [], "\\u0000\\ud83d": 1, "\\u0000\\ud83d": 2}\n'
    report = json.dumps(check(json.dumps(CHAT | {"\x00\ud83d": 1}) + "\n" + bad).report.as_json())
    assert "\\u0000" not in report
    assert "\\ud83d" not in report
    assert "unknown keys" in report
