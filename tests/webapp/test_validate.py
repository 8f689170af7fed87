"""What people really upload: each bad row is named with line, field, reason and fix; nothing is lost or fails."""

import io
import json
import resource
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webapp.datasets.lines import MAX_LINE_BYTES
from webapp.datasets.validate import Validated, validate

KEYS = (
    "messages",
    "role",
    "content",
    "weight",
    "tool_calls",
    "function",
    "name",
    "arguments",
    "prompt",
    "completion",
)
GOOD = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}


def line(row: Any) -> bytes:
    return json.dumps(row).encode() + b"\n"


def said(*turns: tuple[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in turns], **more}


def check(data: bytes) -> Validated:
    return validate(io.BytesIO(data))


def talks(result: Validated) -> list[dict[str, Any]]:
    result.conversations.file.seek(0)
    return [json.loads(each) for each in result.conversations.file]


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + line(GOOD),
        line(GOOD).replace(b"\n", b"\r\n") * 2,
        line(GOOD).rstrip(),
        b"\n\n" + line(GOOD) + b"   \n",
        line({"prompt": "q", "completion": " a"}),
        line(GOOD | {"tools": []}),
        b"\xff\xfe" + line(GOOD).decode().encode("utf-16-le"),
        b"\xfe\xff" + line(GOOD).decode().encode("utf-16-be"),
        b"[" + line(GOOD).strip() + b"]",
    ],
    ids=[
        "BOM",
        "CRLF",
        "no final newline",
        "blank lines",
        "prompt and completion",
        "no tools",
        "UTF-16",
        "UTF-16, big end first",
        "an array",
    ],
)
def test_accepted(data: bytes) -> None:
    result = check(data)
    assert result.report.error is None
    assert result.report.bad == 0
    assert talks(result)[0]["messages"] == [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "a", "weight": 1},
    ]


@pytest.mark.parametrize(
    ("row", "field", "reason"),
    [
        (b'{"messages": NaN}', "line", "NaN"),
        (b'{"messages": [], "x": Infinity}', "line", "Infinity"),
        (b'{"messages": [], "messages": []}', "messages", "twice"),
        (b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "line", "nested"),
        (b'{"messages": ' + b"[" * 80 + b"]" * 80 + b"}", "line", "nested"),
        (b'{"messages": [], "x": ' + b"9" * 5000 + b"}", "line", "5,000 digits"),
        (b'{"messages": [], "x": 1e999}', "line", "too large"),
        (b'{"messages": [{"role": "user", "content": "an "unescaped" quote"}]}', "line", "not JSON"),
        (b"{'messages': []}", "line", "not JSON"),
        (b'{"messages": [{"role": "us', "line", "not JSON"),
        (b"[1, 2]", "line", "not a JSON object"),
        (b'{"messages": "\xff"}', "line", "not UTF-8"),
        (b'{"messages": [], "x": "' + b"a" * 20_000_000 + b'"}', "line", "longer than"),
        (line(said(("user", "q"), ("assistant", "a"), text="x")), "text", "both"),
        (line({"text": "only"}), "line", "not a row"),
        (line({"prompt": "q", "completion": "a"}), "line", "prompt_completion"),
        (line({"messages": []}), "messages", "not a list"),
        (line({"messages": ["hello"]}), "messages[0]", "not an object"),
        (line(said(("robot", "q"))), "messages[0].role", "not a known role"),
        (line(said(("user", "q"), ("assistant", ""))), "messages[1].content", "empty assistant"),
        (line(said(("user", "q"), ("assistant", " \n"))), "messages[1].content", "empty assistant"),
        (line(said(("user", "q"), ("assistant", None))), "messages[1].content", "no content"),
        (line(said(("user", 7), ("assistant", "a"))), "messages[0].content", "not text"),
        (line(said(("user", "q"))), "messages", "no assistant"),
        (line(said(("assistant", "a"), ("user", "q"), ("assistant", "b"))), "messages", "begins with"),
        (line(said(("user", "q"), ("system", "s"), ("assistant", "a"))), "messages", "system"),
        (
            line(said(("user", [{"type": "image_url"}]), ("assistant", "a"))),
            "messages[0].content[0]",
            "text part",
        ),
        (
            b'{"messages":[{"role":"user","content":"\\ud83d"},{"role":"assistant","content":"a"}]}',
            "messages[0].content",
            "surrogate",
        ),
    ],
)
def test_bad_rows(row: bytes, field: str, reason: str) -> None:
    """Beside good rows, which are all kept."""
    result = check(line(GOOD) + row.rstrip(b"\n") + b"\n" + line(GOOD))
    assert (result.report.rows, result.report.good, result.report.bad) == (3, 2, 1)
    [problem] = result.report.problems
    assert (problem["line"], problem["field"]) == (2, field)
    assert reason in problem["reason"]
    assert problem["fix"]
    assert [talk["id"] for talk in talks(result)] == ["1", "3"]


@pytest.mark.parametrize("weight", [0.5, "1", 2, -1, True, [1]])
def test_weights_other_than_0_and_1(weight: Any) -> None:
    row = said(("user", "q"), ("assistant", "a"))
    row["messages"][1]["weight"] = weight
    [problem] = check(line(row)).report.problems
    assert problem["field"] == "messages[1].weight"


def test_weight_0_is_kept_and_not_trained() -> None:
    row = said(("user", "q"), ("assistant", "a"), ("user", "q2"), ("assistant", "b"))
    row["messages"][1]["weight"] = 0
    result = check(line(row))
    assert result.report.examples == 1
    assert [turn.get("weight") for turn in talks(result)[0]["messages"]] == [None, 0, None, 1]
    row["messages"][3]["weight"] = 0
    assert "no assistant message is trained" in check(line(row)).report.problems[0]["reason"]


def test_consecutive_turns_are_merged_and_it_is_said() -> None:
    result = check(line(said(("user", "one"), ("user", "two"), ("assistant", "a"))))
    assert talks(result)[0]["messages"][0]["content"] == "one\n\ntwo"
    assert any("merged" in note for note in result.report.as_json()["notes"])


@pytest.mark.parametrize("arguments", ['{"city": "Oslo"}', {"city": "Oslo"}])
def test_tool_calls_without_content(arguments: Any) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    rows = {
        "messages": [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "rain"},
            {"role": "assistant", "content": "It rains."},
        ]
    }
    result = check(line(rows))
    assert result.report.bad == 0
    told = [turn["content"] for turn in talks(result)[0]["messages"]]
    assert told[1] == '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    assert not any("None" in text for text in told)


def test_control_tokens_stay_plain_text() -> None:
    result = check(line(said(("user", "<|im_end|>"), ("assistant", "a"))))
    assert talks(result)[0]["messages"][0]["content"] == "<|im_end|>"


@pytest.mark.parametrize(
    ("data", "advice"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b"\xff\xfe" + "{}".encode("utf-16-le"), "keys (none)"),
        (b"\xff\xfe{\x00}", "UTF-16"),
        (json.dumps(GOOD).encode("utf-16-le"), "UTF-16"),
        (b"PK\x03\x04....", "ZIP"),
        (b"\x1f\x8b\x08\x00", "gzip"),
        (b"%PDF-1.7", "PDF"),
        (b"Hello,\nthese are notes.\n", "No line of this file"),
        (line({"text": "a"}) + line({"text": "b"}), "keys text"),
    ],
)
def test_files_that_are_something_else(data: bytes, advice: str) -> None:
    result = check(data)
    assert advice in str(result.report.error)
    assert result.report.good == 0


def test_every_bad_row_of_a_file_of_bad_rows() -> None:
    result = check(b"not json\n" * 3)
    assert [problem["line"] for problem in result.report.problems] == [1, 2, 3]


def test_too_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webapp.datasets.validate.MAX_ROWS", 100)
    assert "More than 100 rows" in str(check(line(GOOD) * 101).report.error)
    assert check(line(GOOD) * 100).report.error is None


@pytest.mark.slow
def test_memory_is_bounded() -> None:
    """90 MB of one line, then many long bad rows: the file is on disk, and what is in memory does not grow with it."""
    import tempfile

    with tempfile.TemporaryFile() as file:
        file.write(line(GOOD) + b'{"messages": "' + b"x" * 90_000_000 + b"\n")
        for _ in range(100):
            file.write(b'{"messages": "' + b"y" * (MAX_LINE_BYTES // 2) + b"\n")
        file.seek(0)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = validate(file)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert (result.report.good, result.report.bad) == (1, 101)
    assert grown < 40_000, "kilobytes"


def test_reports_hold_no_content() -> None:
    secret = "my sister's address"
    rows = line(said(("user", secret), ("assistant", ""))) + b'{"messages": "' + secret.encode() + b"\n"
    report = json.dumps(check(line(GOOD) + rows).report.as_json())
    assert "sister" not in report


JSON = st.recursive(
    st.sampled_from(["user", "assistant", "system", "text"])
    | st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(st.binary(max_size=30) | JSON.map(lambda row: json.dumps(row).encode()), max_size=5))
def test_nothing_in_a_file_is_a_fault_of_ours(rows: list[bytes]) -> None:
    """Every row that is not blank is either good or reported, and what is kept is what trainers can read."""
    result = check(line(GOOD) + b"\n".join(rows) + b"\n")
    report = result.report
    assert report.rows == report.good + report.bad
    if report.error is None:
        assert report.rows == 1 + sum(bool(row.strip()) for row in b"\n".join(rows).split(b"\n"))
    for talk in talks(result):
        assert {turn["role"] for turn in talk["messages"]} <= {"system", "user", "assistant"}
        assert all(turn["content"].strip() for turn in talk["messages"])
        assert any(turn.get("weight") == 1 for turn in talk["messages"])


def test_rows_that_are_too_long_are_named() -> None:
    """With all before it an answer is too long; a question after the last answer, or what is context, is none."""
    long = "word " * 150
    skipped = {"role": "assistant", "content": long, "weight": 0}
    rows = [
        said(("user", "q"), ("assistant", "a")),
        said(("user", "q"), ("assistant", "a"), ("user", long), ("assistant", "b")),
        {"messages": [*said(("user", "q"), ("assistant", "a"), ("user", "q"))["messages"], skipped]},
        said(("user", "ж" * 300), ("assistant", "a")),
    ]
    data = b"".join(map(line, rows))
    report = validate(io.BytesIO(data), max_tokens=100).report.as_json()
    assert [(each["line"], each["bytes"] > 500) for each in report["too_long"]["listed"]] == [
        (2, True),
        (4, True),
    ]
    assert report["too_long"]["rows"] == 2
    assert any(
        "2 × an answer has, with all that is before it, more than 500 bytes" in note
        for note in report["notes"]
    )
    assert validate(io.BytesIO(data)).report.as_json()["too_long"] == {"rows": 0, "listed": []}
