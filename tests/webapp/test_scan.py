"""The scanner finds exactly the values that a JSON parser finds, however the document is cut into reads."""

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webapp.datasets.scan import ANY, Broken, places, values

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.text(max_size=2), JSON, max_size=3),
    st.lists(JSON, max_size=5),
    st.booleans(),
    st.sampled_from([None, 1]),
    st.sampled_from([1, 2, 3, 7, 1 << 18]),
)
def test_values_are_those_of_a_parser(
    others: dict[str, Any], wanted: list[Any], ascii_only: bool, indent: int | None, chunk: int
) -> None:
    document = {**others, "list": [{"messages": wanted}, {}, {"messages": wanted}]}
    raw = json.dumps(document, ensure_ascii=ascii_only, indent=indent).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("webapp.datasets.scan._CHUNK", chunk)
        found = list(values(io.BytesIO(raw), [("list", ANY, "messages", ANY)], 10**6))
    assert [json.loads(value.raw or b"") for value in found] == wanted * 2
    assert [value.path for value in found] == [
        ("list", chat, "messages", at) for chat in (0, 2) for at in range(len(wanted))
    ]
    for value in found:
        line = raw.split(b"\n")[value.line - 1]
        assert (value.raw or b"").split(b"\n")[0] in line


def test_a_value_may_be_too_long_and_the_next_is_there() -> None:
    raw = json.dumps(["a" * 100, {"b": 1}, [["c" * 100]], 2]).encode()
    assert [value.raw for value in values(io.BytesIO(raw), [(ANY,)], 50)] == [None, b'{"b": 1}', None, b"2"]


def test_places_are_looked_into_as_well() -> None:
    raw = b'[{"mapping": {"x": 1}, "current_node": "x"}]'
    assert list(places(io.BytesIO(raw), [(ANY,), (ANY, "mapping"), (ANY, "mapping", "x")])) == [
        (0,),
        (0, "mapping"),
        (0, "mapping", "x"),
    ]


@pytest.mark.parametrize(
    ("raw", "line", "reason"),
    [
        (b'{"a": 1\n"b": 2}', 2, "','"),
        (b'{"a" 1}', 1, "':'"),
        (b"{a: 1}", 1, "a key in double quotes"),
        (b'{"a": 1,\n\n"a": 2}', 3, "the same key twice"),
        (b'{"m": [1,\n]}', 2, "a value was expected"),
        (b'{"m": [1', 1, "too early"),
        (b'{"m": ["1', 1, "inside a string"),
        (b'{"m": [{"x": [', 1, "too early"),
        (b'{"m": []} x', 1, "after the end"),
    ],
)
def test_where_a_document_breaks(raw: bytes, line: int, reason: str) -> None:
    with pytest.raises(Broken) as broken:
        list(values(io.BytesIO(raw), [("m", ANY)], 100))
    assert broken.value.line == line
    assert reason in broken.value.reason
