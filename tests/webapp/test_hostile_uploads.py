"""Files made to hurt: each is read in a process with little memory and little time, and ends in a report."""

import json
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.webapp.test_assistant_exports import CHATGPT, CLAUDE, node
from tests.webapp.uploads import check, zipped

MEMORY = 450_000_000
CPU_SECONDS = 60
READ = """
import json, resource, sys
from webapp.datasets.upload import Asked
from webapp.datasets.validate import validate
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]),) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[3]),) * 2)
with open(sys.argv[1], "rb") as file:
    print(json.dumps(validate(file, Asked("Me")).report.as_json()))
"""
MB = 1_000_000
DAY = "13/05/2024, 10:04 - "


def telegram(messages: str) -> str:
    first = '{"from": "Ann", "text": "Hi", "date_unixtime": "1"}, {"from": "Me", "text": "a", "date_unixtime": "2"}'
    return f'{{"messages": [{first}, {messages}]}}'


def many_files() -> bytes:
    """Entries of no bytes: 40,000 of them, in a list of 2 MB."""
    return zipped({str(at): b"" for at in range(40_000)}, zipfile.ZIP_STORED)


#: What the report has to say, and the file.
HOSTILE: dict[str, tuple[str, Callable[[], bytes | str]]] = {
    "a zip bomb": ("far more than text", lambda: zipped({"a.txt": b" " * 100 * MB})),
    "a zip of many files": ("more than 10,000 files", many_files),
    "a list of files without end": (
        "more than 10,000 files",
        lambda: zipped({str(at) + "x" * 5_000: b"" for at in range(1_500)}, zipfile.ZIP_STORED),
    ),
    "arrays in arrays": ("No line of this file", lambda: "[" * 20 * MB),
    "arrays in a message": ("cannot be read", lambda: telegram("[" * 20 * MB)),
    "arrays in a message, closed": (
        "nested deeper",
        lambda: telegram('{"text":' + "[" * 100_000 + "]" * 100_000 + "}"),
    ),
    "small arrays": ("longer than", lambda: telegram('{"text":[' + "[[0]]," * 300_000 + "0]}")),
    "a string without end": ("cannot be read", lambda: telegram('{"text": "' + "a" * 25 * MB)),
    "a long message": ("longer than", lambda: telegram('{"text": "' + "a" * 25 * MB + '"}')),
    "escapes without end": ("longer than", lambda: telegram('{"text": "' + "\\\\" * 10 * MB + '"}')),
    "quotes without end": ("longer than", lambda: telegram('{"text": [' + '"",' * 5 * MB + '""]}')),
    "a number without end": ("longer than", lambda: telegram('{"date_unixtime": ' + "9" * 30 * MB + "}")),
    "a long number": ("digits", lambda: telegram('{"date_unixtime": ' + "9" * 5000 + "}")),
    "a key without end": ("longer than", lambda: '{"' + "k" * 30 * MB + '": 1, ' + telegram("{}")[1:]),
    "many keys": (
        "longer than",
        lambda: "{" + "".join(f'"{at}":0,' for at in range(300_000)) + telegram("{}")[1:],
    ),
    "many values that are none": (
        "cannot be read",
        lambda: telegram("0")[:-1] + ', "chats": {"list": [' + "0," * 600_000,
    ),
    "spaces": ("empty", lambda: " " * 30 * MB),
    "line ends": ("lines", lambda: DAY + "Ann: a\n" + "\n" * 3_100_000),
    "a chat without a silence": (
        "one side",
        lambda: DAY + "Me: a\n" + (DAY + "Ann: " + "word " * 100 + "\n") * 10_000,
    ),
    "a message of many lines": (
        "message longer",
        lambda: DAY + "Ann: a\n" + ("word " * 20 + "\n") * 100_000 + DAY + "Me: b",
    ),
    "a crowd": ("people write", lambda: "".join(f"{DAY}{at}: a\n" for at in range(30_000))),
    "hashes": ("longer than", lambda: "#" + " " * 900_000 + "x" * 300 + "\n" + "text " * MB),
    "headings": ("passages", lambda: ("#" + " " * 150 + "x\n") * 20_000 + "text " * 100),
    "comments": ("passages", lambda: "<!---->" * 73),
    "comments without end, packed": ("passages", lambda: zipped({"a.txt": "<!---->" * 9_000 + "<!--" * 100})),
    "private keys without end": (
        '"private_key", "count": 340000',
        lambda: (json.dumps({"prompt": "a", "completion": "-----BEGIN PRIVATE KEY-----\n" * 34_000}) + "\n")
        * 10,
    ),
    "spaces in a message": (
        "one side",
        lambda: f"{DAY}Ann: a"
        + " " * 900_000
        + f"b\n{DAY}Ann: "
        + "<" * 100_000
        + "\n20/06/2024, 10:04 - Me: a",
    ),
    "citations without end": (
        "without an answer",
        lambda: json.dumps(
            [CHATGPT | {"mapping": {"a": node(None, "assistant", "\ue200" * 2 * MB)}, "current_node": "a"}],
            ensure_ascii=False,
        ),
    ),
    "UTF-16 cut in two": ("UTF-16", lambda: b"\xff\xfe" + "word ".encode("utf-16-le") * 2 * MB + b"\x00"),
}


def read(file: Path) -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, "-c", READ, str(file), str(MEMORY), str(CPU_SECONDS)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert ran.returncode == 0, ran.stderr[-500:]
    return dict(json.loads(ran.stdout))


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_it_ends_in_a_report(name: str, tmp_path: Path) -> None:
    said, make = HOSTILE[name]
    data = make()
    file = tmp_path / "upload"
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    report = json.dumps(read(file), ensure_ascii=False)
    assert said in report, report[:1_000]


def test_the_limits_can_be_missed(tmp_path: Path) -> None:
    """Otherwise the tests above would say nothing."""
    file = tmp_path / "upload"
    file.write_bytes(b"")
    hungry = READ + f"\nb'x' * {MEMORY}"
    ran = subprocess.run(
        [sys.executable, "-c", hungry, str(file), str(MEMORY), "9"], capture_output=True, text=True
    )
    assert "MemoryError" in ran.stderr


def test_an_archive_larger_inside_than_chats_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webapp.datasets.zips.MAX_UNPACKED_BYTES", 1_000)
    assert "holds more than" in str(check(zipped({"a": b"x" * 600, "b": b"y" * 600})).report.error)


def test_an_archive_that_is_locked() -> None:
    data = bytearray(zipped({"a.json": json.dumps([CLAUDE])}))
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + at] |= 1
    assert "password" in str(check(bytes(data)).report.error)


@pytest.mark.parametrize("place", ["content", "size", "end"])
def test_an_archive_that_is_damaged(place: str) -> None:
    data = bytearray(zipped({"a.json": json.dumps([CLAUDE] * 9)}, zipfile.ZIP_STORED))
    if place == "content":
        data[60] ^= 1
    elif place == "size":
        struct.pack_into("<I", data, data.index(b"PK\x01\x02") + 24, 100)
    else:
        del data[-30:]
    report = check(bytes(data)).report
    assert "damaged" in str(report.error) or report.bad


def test_paths_are_never_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = ("../../escape.json", "/etc/escape.json", "C:\\escape.json", "a\x00b.json")
    for name in names:
        assert check(zipped({name: json.dumps([CLAUDE])})).report.good == 1
        assert not list(tmp_path.parent.rglob("escape.json"))
