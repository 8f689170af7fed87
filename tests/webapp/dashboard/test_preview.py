"""What a file's page shows of the tokens that are learned, and to whom."""

import json
from collections.abc import Iterator

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from tests.webapp.company import Company
from tests.webapp.played_engine import PlayedEngine
from webapp.datasets.models import File
from webapp.engine import Engine

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedEngine]:
    with PlayedEngine() as played:
        monkeypatch.setattr("webapp.datasets.preview.engine", lambda: played.engine)
        yield played


def said(*turns: str, **more: object) -> bytes:
    roles = ("user", "assistant") * len(turns)
    talk = [{"role": role, "content": turn} for role, turn in zip(roles, turns, strict=False)]
    return json.dumps({"messages": talk} | more).encode() + b"\n"


def preview(client: Client, *rows: bytes) -> str:
    client.post("/files", {"file": SimpleUploadedFile("c.jsonl", b"".join(rows))})
    return client.get(f"/files/{File.objects.get().id}/preview").content.decode()


def test_each_trained_answer_after_all_that_stands_before_it(teammate: Client, engine: PlayedEngine) -> None:
    page = preview(teammate, said("Hi <b>", "Hello there", "Why", "Because"))
    assert "Hi&lt;b&gt;<mark>Hello</mark><mark>there</mark></pre>" in page
    assert "Hi&lt;b&gt;HellothereWhy<mark>Because</mark></pre>" in page
    assert "A prompt of 2 tokens, and 2 that are learned:" in page
    assert "A prompt of 5 tokens, and 1 that is learned:" in page


def test_the_first_three_are_enough(teammate: Client, engine: PlayedEngine) -> None:
    assert preview(teammate, *(said(f"Q{n}", f"A{n}") for n in range(5))).count("<pre") == 3


def test_pairs_show_both_answers(teammate: Client, engine: PlayedEngine) -> None:
    pair = {
        "input": {"messages": [{"role": "user", "content": "Hi"}]},
        "preferred_output": [{"role": "assistant", "content": "Yo"}],
        "non_preferred_output": [{"role": "assistant", "content": "Greetings"}],
    }
    page = preview(teammate, json.dumps(pair).encode())
    assert "that is preferred:" in page
    assert "Hi<mark>Yo</mark>" in page
    assert "that is rejected:" in page
    assert "Hi<mark>Greetings</mark>" in page


def test_an_answer_that_is_left_out_says_why(teammate: Client, engine: PlayedEngine) -> None:
    assert "will be left out. It is too long." in preview(teammate, said("Hi", "toolong"))


def test_the_engine_is_away(teammate: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webapp.datasets.preview.engine", lambda: Engine("http://127.0.0.1:9", "key"))
    assert "does not answer at the moment" in preview(teammate, said("Hi", "Hello"))


def test_nobody_else_sees_them(
    company: Company, teammate: Client, owner: Client, engine: PlayedEngine
) -> None:
    """What a person uploaded for themselves; the company's own is for those who train on it."""
    preview(teammate, said("Hi", "Hello"))
    assert owner.get(f"/files/{File.objects.get().id}/preview").status_code == 404
    assert owner.get(f"/files/{company.file().id}/preview").status_code == 200
