"""A company on the running stack, reached as a customer reaches it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from local_stack.stack import Stack

ROOT = Path(__file__).resolve().parents[2]
BASE = "smollm2-135m-instruct"


@pytest.fixture(scope="session")
def client(stack: Stack) -> Iterator[openai.OpenAI]:
    """The unmodified client, told to check every answer."""
    seeded = subprocess.run(
        [sys.executable, "manage.py", "demo_seed", "maren"],
        cwd=ROOT,
        env={**os.environ, **stack.env},
        capture_output=True,
        text=True,
        check=True,
    )
    with openai.OpenAI(
        api_key=json.loads(seeded.stdout)["api_key"],
        base_url=f"{stack.urls['web']}/v1",
        max_retries=0,
        timeout=120,
        _strict_response_validation=True,
        http_client=httpx.Client(trust_env=False, timeout=120),
    ) as made:
        yield made


def rows(count: int) -> bytes:
    """The first of the demo's conversations."""
    lines = (ROOT / "local_stack" / "demo_data" / "maren.jsonl").read_bytes().splitlines()
    return b"\n".join(lines[:count]) + b"\n"


def train(
    client: openai.OpenAI, *, user: str, count: int = 12, epochs: int = 2, seed: int = 1, **more: Any
) -> Any:
    """A job for an end user, started. `more`: Attune's own fields."""
    file = client.files.create(file=("maren.jsonl", rows(count)), purpose="fine-tune")
    return client.fine_tuning.jobs.create(
        model=BASE,
        training_file=file.id,
        metadata={"user": user},
        seed=seed,
        method={"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": epochs}}},
        extra_body=more,
    )


def progress(client: openai.OpenAI, job: str) -> dict[str, Any]:
    """Attune's own part of a job: state, step, total_steps, attempt."""
    return client.fine_tuning.jobs.retrieve(job).to_dict()["progress"]


def wait_for(client: openai.OpenAI, job: str, *, state: str, step: int = 0, timeout: float = 900) -> None:
    """Until the job is in `state`, at `step` or later; fails at once if it can no longer get there.

    A training takes a minute alone and several beside another engine: the default only ends what hangs.
    """
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        now = progress(client, job)
        if now["state"] == state and now["step"] >= step:
            return
        if now["state"] in ("succeeded", "failed", "cancelled"):
            break
        time.sleep(0.3)
    events = [event.message for event in client.fine_tuning.jobs.list_events(job)]
    error = client.fine_tuning.jobs.retrieve(job).error
    raise AssertionError(f"{job} is {progress(client, job)}, not {state}: {error} {events}")


def say(client: openai.OpenAI, text: str, **more: Any) -> Any:
    """One greedy answer."""
    messages = [{"role": "user", "content": text}]
    return client.chat.completions.create(
        messages=messages, **{"model": BASE, "temperature": 0, "max_tokens": 24, **more}
    )
