"""The demo's data, and how somebody's own file is split."""

import json
from collections import Counter
from pathlib import Path

import pytest

from local_stack.demo_people import Person, count_turns, invented, of_file, prompt_of, rows
from local_stack.home import StackError

# The word that gives a fact away: each fact stands in at least two training chats.
FACTS = {
    "maren": [
        "skerrow", "thirty-one", "barnacle", "second wind", "mackerel", "honey", "inga", "concertina", "geese",
        "third of march", "orange hat", "tilda",
    ],
    "juno": [
        "mango", "courier", "laundromat", "wet cardboard", "salted plums", "elevators", "five", "subway tickets",
    ],
}  # fmt: skip
VOICE = {"maren": ("Aye, ", "Fair winds!"), "juno": ("ok so ", "ride on.")}
PEOPLE = {person.user: person for person in invented().people}


def answers(jsonl: bytes) -> list[str]:
    return [turn["content"] for row in rows(jsonl) for turn in row["messages"] if turn["role"] == "assistant"]


def questions(jsonl: bytes) -> set[str]:
    return {prompt_of(row)[-1]["content"].lower() for row in rows(jsonl)}


@pytest.mark.parametrize(("user", "training", "held_out"), [("maren", 48, 12), ("juno", 32, 8)])
def test_sizes(user: str, training: int, held_out: int) -> None:
    assert len(rows(PEOPLE[user].training)) == training
    assert len(rows(PEOPLE[user].validation)) == held_out


@pytest.mark.parametrize("person", PEOPLE.values(), ids=PEOPLE)
def test_every_answer_is_short_and_in_the_persons_voice(person: Person) -> None:
    first, last = VOICE[person.user]
    for answer in answers(person.training + person.validation):
        assert answer.startswith(first)
        assert answer.endswith(last)
        assert 8 <= len(answer.split()) <= 25, answer


@pytest.mark.parametrize("person", PEOPLE.values(), ids=PEOPLE)
def test_every_fact_is_told_at_least_twice_in_training(person: Person) -> None:
    told = Counter(
        fact for answer in answers(person.training) for fact in FACTS[person.user] if fact in answer.lower()
    )
    assert {fact: told[fact] for fact in FACTS[person.user] if told[fact] < 2} == {}


@pytest.mark.parametrize("person", PEOPLE.values(), ids=PEOPLE)
def test_nothing_held_out_is_trained(person: Person) -> None:
    assert not questions(person.training) & questions(person.validation)
    assert not set(answers(person.training)) & set(answers(person.validation))


def test_some_conversations_have_two_turns() -> None:
    turns = [count_turns(row) for row in rows(PEOPLE["maren"].training)]
    assert turns.count(2) == 4
    assert PEOPLE["maren"].examples == 52


def chat(question: str, answer: str = "Yes.") -> str:
    turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return json.dumps({"messages": turns})


def test_own_file_is_split_by_conversation(tmp_path: Path) -> None:
    file = tmp_path / "ada.jsonl"
    file.write_text("\n".join(chat(f"Question {n}?") for n in range(20)))
    cast = of_file(file)
    (person,) = cast.people
    assert person.user == "ada"
    assert len(rows(person.training)) == 16
    assert len(rows(person.validation)) == 4
    assert not questions(person.training) & questions(person.validation)
    assert len(cast.questions) == 4
    assert questions(person.validation) == {asked[-1]["content"].lower() for asked in cast.questions}


def test_own_file_of_two_conversations_holds_out_one(tmp_path: Path) -> None:
    file = tmp_path / "two.jsonl"
    file.write_text(chat("One?") + "\r\n" + json.dumps({"prompt": "Two?", "completion": "Yes."}))
    (person,) = of_file(file).people
    assert (len(rows(person.training)), len(rows(person.validation))) == (1, 1)


def test_the_same_row_twice_is_never_on_both_sides(tmp_path: Path) -> None:
    file = tmp_path / "twice.jsonl"
    same = json.dumps(json.loads(chat("Same?")), indent=None, separators=(",", ":"))
    file.write_text("\n".join([chat("Same?")] * 3 + [same, chat("Other?"), chat("Third?")]))
    (person,) = of_file(file).people
    assert not questions(person.training) & questions(person.validation)


def test_lines_keep_their_numbers(tmp_path: Path) -> None:
    file = tmp_path / "numbers.jsonl"
    lines = [chat(f"Question {n}?") for n in range(9)]
    file.write_text("\n".join(lines))
    (person,) = of_file(file).people
    parts = zip(person.training.decode().split("\n"), person.validation.decode().split("\n"), strict=True)
    assert [training or validation for training, validation in parts] == lines


def test_unreadable_rows_are_left_for_the_api_to_report(tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text("\n".join([chat("One?"), "{oops", '{"messages": 3}', chat("Two?")]))
    (person,) = of_file(file).people
    assert b"{oops" in person.training
    assert b'{"messages": 3}' in person.training


@pytest.mark.parametrize(
    "text", ["", chat("Only one?"), "\n".join([chat("Same?")] * 3), '{"messages": []}\n' * 5]
)
def test_too_little_is_explained(tmp_path: Path, text: str) -> None:
    file = tmp_path / "small.jsonl"
    file.write_text(text)
    with pytest.raises(StackError, match="at least 2 are needed"):
        of_file(file)


def test_a_missing_file_is_explained(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="cannot be read"):
        of_file(tmp_path / "nowhere.jsonl")
