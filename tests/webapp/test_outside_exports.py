"""Exports that none of us wrote. ATTUNE_OUTSIDE_SAMPLES names their folder."""

import os
from pathlib import Path

import pytest

from tests.webapp.uploads import check

#: Format, speakers or None for rows, rows that are good.
SAMPLES = {
    "conversations.jsonl": ("openai_chat", None),
    "identity.json": ("alpaca", None),
    "instagram-test_export.json": ("messenger", {"John Doe": 1, "Jane Doe": 1}),
    "signal-test_export.txt": ("signal", {"Jane Doe": 1, "John Doe": 1}),
    "telegram-test_batch_export.json": ("telegram", {"Author 1": 1, "Author 2": 1}),
    "telegram-test_single_export.json": ("telegram", {"Author 1": 1, "Author 2": 1}),
    "whatsapp-test_ddmmyy_24hrs.txt": ("whatsapp", 7),
    "whatsapp-test_mmddyyyy_12hrs.txt": ("whatsapp", 7),
    "whatsapp-test_yyyymmdd_24hrs.txt": ("whatsapp", 7),
}


@pytest.fixture(scope="module")
def samples() -> Path:
    folder = Path(os.environ.get("ATTUNE_OUTSIDE_SAMPLES", ""))
    if not os.environ.get("ATTUNE_OUTSIDE_SAMPLES") or not folder.is_dir():
        pytest.skip("ATTUNE_OUTSIDE_SAMPLES names no folder, so exports from outside were not read.")
    return folder


@pytest.mark.parametrize("name", SAMPLES)
def test_it_is_recognised_and_read(samples: Path, name: str) -> None:
    form, speakers = SAMPLES[name]
    report = check((samples / name).read_bytes()).report
    assert (report.format, report.bad) == (form, 0)
    if speakers is None:
        assert (report.error, report.good) == (None, report.rows)
        return
    found = report.findings.speakers
    assert report.code == "speaker_needed"
    assert (sum(found.values()) if isinstance(speakers, int) else found) == speakers


def test_whatsapp_says_the_same_in_every_order_of_dates(samples: Path) -> None:
    speakers = [
        check(file.read_bytes()).report.findings.speakers for file in sorted(samples.glob("whatsapp-*"))
    ]
    assert len(speakers) == 3
    assert speakers[0] == speakers[1] == speakers[2]
    assert "You were added" not in speakers[0]


def test_telegrams_entities_are_one_text(samples: Path) -> None:
    result = check((samples / "telegram-test_single_export.json").read_bytes(), me="Author 2")
    assert result.report.good == 1
    result.conversations.file.seek(0)
    assert b'"Link:https://telegram.org/"' in result.conversations.file.read()
