"""The whole job on chats that none of us wrote: upload, train, chat. ATTUNE_OUTSIDE_SAMPLES names their folder."""

import json
import math
import os
import re
from pathlib import Path

import pytest
from openai import OpenAI

from local_stack.demo_accounts import accounts_create
from local_stack.demo_answers import ask
from local_stack.demo_people import Cast, of_file
from local_stack.demo_training import Run, run_start, runs_follow, upload
from local_stack.home import DEMO_MODEL
from local_stack.stack import Stack

pytestmark = pytest.mark.stack

TRAINED_ON = 40
PLACEHOLDERS = {"NAME": "Quill", "AUTHOR": "the Attune tests"}


@pytest.fixture(scope="module")
def samples() -> Path:
    folder = os.environ.get("ATTUNE_OUTSIDE_SAMPLES")
    if not folder:
        pytest.skip("ATTUNE_OUTSIDE_SAMPLES is not set, so the job was not run on chats from outside.")
    if not Path(folder).is_dir():
        pytest.skip(
            f"ATTUNE_OUTSIDE_SAMPLES names {folder}, which is not here: nothing was run on outside chats."
        )
    return Path(folder)


@pytest.fixture(scope="module")
def client(samples: Path, stack: Stack) -> OpenAI:
    return OpenAI(
        base_url=f"{stack.urls['web']}/v1", api_key=accounts_create(stack, end_user="outside").api_key
    )


def test_conversations(client: OpenAI, samples: Path, tmp_path: Path) -> None:
    whole = samples / "conversations.jsonl"
    lines = whole.read_bytes().splitlines(keepends=True)
    taken = upload(client, name=whole.name, content=whole.read_bytes())
    assert taken.report["good"] == len(lines)
    # All of them take a CPU minutes more and show no more.
    some = tmp_path / whole.name
    some.write_bytes(b"".join(lines[:TRAINED_ON]))
    cast = of_file(some)
    run = trained(client, cast, n_epochs=1)
    assert run.before is not None
    assert math.isfinite(run.after)
    answered_by(client, run, cast)


def test_alpaca_rows_as_chats(client: OpenAI, samples: Path, tmp_path: Path) -> None:
    rows = json.loads((samples / "identity.json").read_text())
    file = tmp_path / "identity.jsonl"
    file.write_text("\n".join(json.dumps(chat_of(row)) for row in rows))
    assert not re.search(r"NAME|AUTHOR|\{\{", file.read_text())
    cast = of_file(file)
    answered_by(client, trained(client, cast, n_epochs=1), cast)


def chat_of(row: dict[str, str]) -> dict[str, list[dict[str, str]]]:
    """OpenAI's chat shape of an Alpaca row; `input` follows `instruction`, as Alpaca's own prompt has it."""
    asked = "\n".join(part for part in (row["instruction"], row["input"]) if part)
    turns = [("user", asked), ("assistant", row["output"])]
    return {"messages": [{"role": role, "content": filled(text)} for role, text in turns]}


def filled(text: str) -> str:
    """Placeholders stand as NAME or as {{name}}."""

    def value(match: re.Match[str]) -> str:
        return PLACEHOLDERS[(match[1] or match[2]).upper()]

    return re.sub(r"\{\{(name|author)\}\}|(NAME|AUTHOR)", value, text)


def trained(client: OpenAI, cast: Cast, *, n_epochs: int) -> Run:
    run = run_start(client, person=cast.people[0], base=DEMO_MODEL, n_epochs=n_epochs)
    runs_follow(client, [run], changed=lambda _: None)
    assert run.succeeded, run.problem
    assert run.step > 0
    return run


def answered_by(client: OpenAI, run: Run, cast: Cast) -> None:
    """The person's answers come from the new adapter, the base model's do not, and they differ."""
    user = run.person.user
    answers = ask(
        client, base=DEMO_MODEL, users=[None, user], questions=cast.questions[:3], changed=lambda _: None
    )
    assert {(answer.model, answer.adapter_header) for answer in answers[user]} == {(run.adapter, run.adapter)}
    assert {(answer.model, answer.adapter_header) for answer in answers[None]} == {(DEMO_MODEL, "base")}
    assert [answer.text for answer in answers[user]] != [answer.text for answer in answers[None]]
    assert all(answer.text.strip() for answer in answers[user])
