"""Rows of a validation file that mostly say what the training file says: they would measure what is known by heart."""

from array import array
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from webapp.datasets.alike import SHORTEST, Sketches
from webapp.datasets.fingerprint import plain

_TRAINED = -1


def leaked(training: Iterable[dict[str, Any]], validation: Iterable[dict[str, Any]]) -> frozenset[int]:
    """Numbers, from 0, of those `validation` rows of which more than half, by length, is learned from `training` too.

    Both are rows of normalised files. Memory: about 200 bytes for each trained message.
    """
    sketches, rows, lengths = Sketches(), array("q"), array("q")
    for number, talks in ((_TRAINED, training), (0, validation)):
        for row, talk in enumerate(talks):
            for words in _learned(talk):
                sketches.add(words)
                rows.append(number if number == _TRAINED else row)
                lengths.append(len(words))
    row, length = np.frombuffer(rows, np.int64), np.frombuffer(lengths, np.int64)
    judged = row != _TRAINED
    found = sketches.elsewhere(judged.astype(np.int64))[judged]
    repeated, whole = (np.bincount(row[judged], length[judged] * part) for part in (found, 1))
    return frozenset(np.flatnonzero(repeated * 2 > whole).tolist())


def _learned(talk: dict[str, Any]) -> Iterator[str]:
    """What each trained message is told by: its words, those of a short one with what it answers; a pair's prompt."""
    turns = talk["messages"]
    if "rejected" in talk:
        yield " ".join(plain(turn["content"]) for turn in turns[:-1] if turn["role"] != "system")
        return
    for index, turn in enumerate(turns):
        if turn.get("weight") == 1:
            words = plain(turn["content"])
            if len(words) < SHORTEST and index:
                words = f"{plain(turns[index - 1]['content'])} {words}"
            yield words
