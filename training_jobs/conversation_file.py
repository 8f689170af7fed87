"""A file of conversations or preference pairs as attune-train takes it, in OpenAI's form or the normalised one."""

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from training_jobs.held_out import held_out_choose
from training_jobs.messages import HELD_OUT_FEWEST, Conversation, JobType


def conversations(path: Path, *, held_out: float, seed: int) -> list[Conversation]:
    """The file's good rows, some held out (`held_out_choose`); bad ones are named on standard error.

    They are preference pairs if the first one is, and then all that is none is bad.
    """
    good: list[Conversation] = []
    for number, line in enumerate(path.open("rb"), start=1):
        if not line.strip():
            continue
        try:
            talk = Conversation.model_validate({"id": str(number)} | _known(dict(json.loads(line))))
            if good and type_of([talk]) != type_of(good):
                raise _Other(type_of(good))
            good.append(talk)
        except (ValueError, TypeError, LookupError, RecursionError, _Other) as error:
            print(f"line {number} is left out: {reason_of(error)}", file=sys.stderr)
    chosen = held_out_choose(good, held_out, seed=seed)
    if held_out and not chosen and all(talk.split == "train" for talk in good):
        print(
            f"Nothing is held out: there are fewer than {HELD_OUT_FEWEST} conversations, and of so few each is needed, "
            'or they are of one piece. Rows with "split": "validation" are judged by, however few.',
            file=sys.stderr,
        )
    return [
        talk.model_copy(update={"split": "validation"}) if index in chosen else talk
        for index, talk in enumerate(good)
    ]


def type_of(talks: list[Conversation]) -> JobType:
    return "dpo" if talks and talks[0].rejected is not None else "supervised"


class _Other(Exception):
    """A row of the other type than the file's."""

    def __init__(self, kind: JobType) -> None:
        super().__init__(f"it is {'no' if kind == 'dpo' else 'a'} preference pair, unlike the first row")


def _known(row: dict[str, Any]) -> dict[str, Any]:
    """What a Conversation is made of, of a normalised row its id too. Raises LookupError, TypeError or ValueError for
    half a pair."""
    if "preferred_output" not in row:
        keys = (
            ("messages", "rejected", "split")
            if "split" not in row
            else ("id", "messages", "rejected", "split")
        )
        return {key: row[key] for key in keys if key in row}
    [preferred], [rejected] = row["preferred_output"], row["non_preferred_output"]
    pair = {"messages": [*row["input"]["messages"], preferred], "rejected": rejected["content"]}
    return pair | ({"split": row["split"]} if "split" in row else {})


def reason_of(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"it has no {error}"
    if isinstance(error, _Other):
        return str(error)
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False, include_url=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg'].removeprefix('Value error, ')}"
    return "it is not a JSON object" if isinstance(error, TypeError) else f"it is not JSON ({error})"
