"""Whose models the demo trains: two invented people, or whoever a file of your own is about."""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_stack.home import StackError

DATA = Path(__file__).with_name("demo_data")
HELD_OUT = 0.2
MOST_HELD_OUT = 50
QUESTIONS_OF_YOUR_OWN = 5

Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Person:
    """An end user of the demo's tenant: their chats, and how their adapter is trained."""

    user: str
    title: str
    method: str  # "direft" or "lora"; both act on the prompt only
    training: bytes  # JSONL
    validation: bytes  # JSONL, never trained on

    @property
    def examples(self) -> int:
        """Trained assistant turns: what a trainer counts its steps by."""
        return sum(count_turns(row) for row in rows(self.training))

    @property
    def method_title(self) -> str:
        return {"direft": "DiReFT_P", "lora": "LoRA_P"}[self.method]


@dataclass(frozen=True)
class Cast:
    """The people of one demo and what all models are asked."""

    people: tuple[Person, ...]
    questions: tuple[Messages, ...]


def invented() -> Cast:
    """Maren kept a lighthouse; Juno is a bicycle courier. Questions 3 and 4 are held out for both."""
    questions = (
        "Where do you live?",
        "What are you afraid of?",
        "How do I sleep better?",
        "I start a new job tomorrow.",
        "What is the capital of France?",
    )
    people = (
        _invented("maren", title="Maren, lighthouse keeper", method="direft"),
        _invented("juno", title="Juno, bike courier", method="lora"),
    )
    return Cast(people, tuple([{"role": "user", "content": question}] for question in questions))


def of_file(file: Path) -> Cast:
    """One person from a file of chats; about a fifth of the conversations is held out.

    Rows that cannot be read stay in the training part: the API reports them far better than the demo could. Lines
    that went to the other part stay as blank ones, so that its report has the line numbers of `file`.
    """
    try:
        lines = file.read_bytes().split(b"\n")
    except OSError as error:
        raise StackError(
            f"{file} cannot be read: {error.strerror}. Give a file of chats as DATA=…."
        ) from None
    held_out = _held_out(file, lines)
    person = Person(
        user=file.stem[:200],
        title=file.stem,
        method="direft",
        training=b"\n".join(b"" if line in held_out else line for line in lines),
        validation=b"\n".join(line if line in held_out else b"" for line in lines),
    )
    asked: list[Messages] = []
    for row in rows(person.validation):
        if (prompt := prompt_of(row)) not in asked:
            asked.append(prompt)
    return Cast((person,), tuple(asked[:QUESTIONS_OF_YOUR_OWN]))


def _held_out(file: Path, lines: list[bytes]) -> set[bytes]:
    """The lines to hold out. Rows that say the same, however they are written, stay on one side."""
    alike: dict[str, list[bytes]] = {}
    for line in lines:
        if prompt_of(row := parse(line)):
            alike.setdefault(json.dumps(row, sort_keys=True), []).append(line)
    if len(alike) < 2:
        raise StackError(
            f"{file} has {len(alike)} different readable conversations; at least 2 are needed, one of them to test "
            'with. Each line is one: {"messages": [{"role": "user", "content": "…"}, '
            '{"role": "assistant", "content": "…"}]}.'
        )
    count = min(MOST_HELD_OUT, max(1, round(len(alike) * HELD_OUT)))
    chosen = random.Random(0).sample(list(alike.values()), count)
    return {line for group in chosen for line in group}


def rows(jsonl: bytes) -> list[Any]:
    return [parse(line) for line in jsonl.splitlines() if line.strip()]


def parse(line: bytes) -> Any:
    try:
        return json.loads(line.removeprefix(b"\xef\xbb\xbf"))
    except (ValueError, RecursionError):
        return None


def count_turns(row: Any) -> int:
    """Assistant turns with weight 1; a prompt/completion row is one."""
    if not isinstance(row, dict) or not isinstance(row.get("messages"), list):
        return 1
    return sum(
        1
        for message in row["messages"]
        if isinstance(message, dict) and message.get("role") == "assistant" and message.get("weight", 1)
    )


def prompt_of(row: Any) -> Messages:
    """What a row asks: everything before its first answer; empty if it asks nothing."""
    if not isinstance(row, dict):
        return []
    if isinstance(row.get("prompt"), str) and row.get("completion"):
        return [{"role": "user", "content": row["prompt"]}]
    asked: Messages = []
    messages = row.get("messages")
    for message in messages if isinstance(messages, list) else []:
        if not isinstance(message, dict) or not isinstance(message.get("content"), str):
            return []
        if message.get("role") == "assistant":
            return asked if any(turn["role"] == "user" for turn in asked) else []
        asked.append({"role": message.get("role"), "content": message["content"]})
    return []


def _invented(user: str, *, title: str, method: str) -> Person:
    return Person(
        user=user,
        title=title,
        method=method,
        training=(DATA / f"{user}.jsonl").read_bytes(),
        validation=(DATA / f"{user}.validation.jsonl").read_bytes(),
    )
