"""Texts that say nearly the same, and texts that only look alike."""

import random

import numpy as np
import pytest

from tests.webapp.test_formats import CHAT, lines
from tests.webapp.uploads import check
from webapp.datasets.alike import Sketches
from webapp.datasets.fingerprint import plain

SYLLABLES = [
    "la",
    "mo",
    "ri",
    "ve",
    "sto",
    "ne",
    "win",
    "dow",
    "gar",
    "den",
    "bri",
    "ka",
    "tu",
    "pel",
    "os",
    "ith",
]


def text(seed: int, words: int = 40) -> str:
    chosen = random.Random(seed)
    return " ".join("".join(chosen.choices(SYLLABLES, k=chosen.randint(1, 3))) for _ in range(words))


def alike(*texts: str) -> bool:
    sketches = Sketches()
    for each in texts:
        sketches.add(plain(each))
    return bool(sketches.elsewhere(np.arange(len(texts))).any())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (text(1), text(1).upper() + "!"),
        (text(1), text(1) + " tonight"),
        (text(1), text(1).replace(text(1).split()[20], "brook")),
        (text(2, 400), " ".join(text(2, 400).split()[20:])),
        ("昨夜はずっとランプを灯していましたが、家の前を通る人は誰もいませんでした。それでも私たちは朝まで待ちました。",
         "昨夜はずっとランプを灯していましたが、家の前を通る人は誰もいませんでした。それでも私たちは昼まで待ちました。"),
        ("Yes.", "yes"),
    ],
    ids=["loud", "longer", "a word", "its start gone", "Japanese", "short"],
)  # fmt: skip
def test_nearly_the_same(one: str, other: str) -> None:
    assert alike(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (text(1), text(3)),
        (text(1, 2000), text(3, 2000)),
        ("Answer 12.", "Answer 13."),
        ("Yes, I do think so.", "Yes, I did think so."),
        ("😀", "🎉"),
        (text(1), text(1) + " " + text(3)),
    ],
    ids=["two", "two long ones", "a number", "a word of few", "emoji", "half"],
)
def test_others(one: str, other: str) -> None:
    assert not alike(one, other)


def test_each_of_many_is_found_beside_the_first() -> None:
    sketches = Sketches()
    for seed in range(300):
        sketches.add(text(seed % 100) + (" and more" if seed % 3 else ""))
    firsts: dict[int, int] = {}
    for first, second in sketches.alike(np.arange(300)):
        for a, b in zip(first.tolist(), second.tolist(), strict=True):
            firsts[b] = min(a, firsts.get(b, a))
    assert firsts == {number: number % 100 for number in range(100, 300)}


def test_the_report_names_rows_that_are_nearly_alike() -> None:
    """In what is learned and in what is asked: one question for many answers is a template."""

    def row(asked: str, answer: str) -> dict[str, object]:
        said = (
            ("system", "Be brief, be kind, and never say more than you were asked to say."),
            ("user", asked),
        )
        turns = [{"role": role, "content": content} for role, content in (*said, ("assistant", answer))]
        return {"messages": turns}

    asked = "Please translate the following sentence into the language of the harbour: "
    rows = [
        row(asked + "one", text(1)),
        row(asked + "two", text(2)),
        row(asked + "one", text(1) + " tonight"),
    ]
    report = check(lines(*rows, row("Why?", text(2)), CHAT)).report.as_json()
    assert report["near_duplicates"] == {"rows": 1, "listed": [{"id": "3", "line": 3, "like": 1}]}
    assert report["duplicates"]["rows"] == 0
    assert any(note.startswith("1 × a row says nearly what") for note in report["notes"])


def test_the_order_of_files_does_not_matter() -> None:
    texts = [text(seed) for seed in range(50)] + [text(7) + " again"]
    for order in (texts, texts[::-1]):
        sketches = Sketches()
        for each in order:
            sketches.add(each)
        assert sketches.elsewhere(np.arange(51)).sum() == 2
