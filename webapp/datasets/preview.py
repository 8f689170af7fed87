"""Exactly which tokens of a file's first answers a training would learn; the engine tells, by the trainers' rule."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import httpx
import orjson

from adapters_store.errors import AdapterError
from webapp.config.faults import Unavailable
from webapp.datasets.models import File
from webapp.datasets.storage import storage_away
from webapp.datasets.stored import stored_lines
from webapp.engine import engine

#: Enough to see the rule at work, few enough to be tokenized while somebody waits.
_SHOWN = 3
_SECONDS = 10.0


class Example(NamedTuple):
    """The texts of tokens; or `fault`, why this answer will be left out. `role`: of an answer of a pair, which."""

    role: str
    prompt: list[str]
    target: list[str]
    fault: str


def examples_preview(file: File) -> list[Example]:
    """Of the base model that the engine serves. Raises Unavailable: the engine or storage is away."""
    lines = stored_lines(tenant=file.tenant.storage_id, sha256=file.conversations_sha256)
    try:
        return [_example(role, messages) for role, messages in islice(_answers(lines), _SHOWN)]
    except AdapterError:
        raise storage_away() from None
    except httpx.HTTPError:
        raise Unavailable(
            "The engine, which knows the base model's tokens, does not answer at the moment. Try again shortly.",
            code="engine_unavailable",
        ) from None


def _answers(lines: Iterator[bytes]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Each trained answer with all that comes before it."""
    for line in lines:
        talk = orjson.loads(line)
        turns = talk["messages"]
        if (rejected := talk.get("rejected")) is not None:
            yield "preferred", turns
            yield "rejected", [*turns[:-1], {"role": "assistant", "content": rejected}]
            continue
        for index, turn in enumerate(turns):
            if turn["role"] == "assistant" and turn.get("weight"):
                yield "learned", turns[: index + 1]


def _example(role: str, messages: list[dict[str, Any]]) -> Example:
    said = [{"role": turn["role"], "content": turn["content"]} for turn in messages]
    answer = engine().example(said, seconds=_SECONDS)
    if answer.status_code == 400:
        return Example(role, [], [], answer.json()["error"]["message"])
    answer.raise_for_status()
    return Example(role, **answer.json(), fault="")
