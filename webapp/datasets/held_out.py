"""Which conversations of a file a job is judged by rather than trained on, if it names no validation file.

Never rows of one source (a chat; pairs that answer one prompt) on both sides: whole ones are held out, in an order that
their content gives, so that the same file always splits alike. Where there are few and one of them is long (the export
of one chat), its last conversations are held out: it is cut by time, at a silence. What mostly says what is said
elsewhere too, or nearly so, would be no fair judge, and stays with what is trained.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from training_jobs.messages import HELD_OUT_FEWEST, HELD_OUT_LEAST, held_out_count
from webapp.datasets.alike import Sketches
from webapp.datasets.fingerprint import digest_of, fingerprint, plain

_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class HeldOut:
    """`rows`: their numbers in the file, from 0. `by`: how they were chosen; None if there are none."""

    rows: frozenset[int] = frozenset()
    by: Literal["conversation", "time"] | None = None


def held_out_choose(talks: Iterable[dict[str, Any]], share: float) -> HeldOut:
    """`talks`: a normalised file's rows, in its order, in which those of one chat stand together.

    Memory: 16 bytes a row (about 150 for preference pairs) and about 300 for each trained message.
    """
    file = _File(talks)
    if not share or len(file.source) < HELD_OUT_FEWEST:
        return HeldOut()
    return file.by_conversation(share) or file.by_time(share) or HeldOut()


class _File:
    """Of each row its source and conversation, of each trained message its row, fingerprint, sketch and length."""

    def __init__(self, talks: Iterable[dict[str, Any]]) -> None:
        source, whole, row, said, length = array("q"), array("q"), array("q"), array("Q"), array("q")
        prompts: dict[int, int] = {}
        self.sketches = Sketches()
        last: tuple[str, ...] = ()
        for number, talk in enumerate(talks):
            if "rejected" in talk:
                # Others anywhere in the file may answer the same prompt.
                prompt = fingerprint(turn["content"] for turn in talk["messages"][:-1])
                source.append(prompts.setdefault(prompt, len(prompts)))
                whole.append(source[-1])
            else:
                name = tuple(talk["id"].split(".")[:2])
                source.append(source[-1] + (name[0] != last[0]) if last else 0)
                whole.append(whole[-1] + (name != last) if last else 0)
                last = name
            for turn in talk["messages"]:
                if turn.get("weight") == 1:
                    row.append(number)
                    words = plain(turn["content"])
                    said.append(digest_of([words]))
                    self.sketches.add(words)
                    length.append(len(turn["content"]))
        self.source = np.frombuffer(source, np.int64)
        self.whole = np.frombuffer(whole, np.int64)
        self.row = np.frombuffer(row, np.int64)
        self.said = np.frombuffer(said, np.uint64)
        self.length = np.frombuffer(length, np.int64)
        self.sizes = np.bincount(self.source)

    def by_conversation(self, share: float) -> HeldOut | None:
        """Whole conversations, as many as the share says, and together no more rows than it says."""
        if len(self.sizes) < HELD_OUT_FEWEST:
            return None
        room, places = held_out_count(share, len(self.source)), held_out_count(share, len(self.sizes))
        owner = self.source[self.row]
        fair = self._fair(owner)
        chosen: list[int] = []
        for source in self._order(owner):
            if fair[source] and self.sizes[source] <= room and len(chosen) < places:
                chosen.append(source)
                room -= self.sizes[source]
        return _held_out(np.flatnonzero(np.isin(self.source, chosen)), "conversation")

    def by_time(self, share: float) -> HeldOut | None:
        """The last conversations of the longest source, each with all of its pieces, and never more than half of it."""
        pieces = np.flatnonzero(self.source == self.sizes.argmax())
        room = min(held_out_count(share, len(self.source)), len(pieces) // 2)
        # The first of these may have begun before.
        last = pieces[len(pieces) - room :]
        last = last[self.whole[last] != self.whole[pieces[len(pieces) - room - 1]]]
        return _held_out(last[self._fair(self.row)[last]], "time")

    def _order(self, owner: npt.NDArray[np.int64]) -> list[int]:
        """Sources by what their trained messages say."""
        keys = np.zeros(len(self.sizes), np.uint64)
        np.add.at(keys, owner, self.said)
        return np.argsort(keys * _MIX, kind="stable").tolist()

    def _fair(self, owner: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which owners of messages say at least half of it, by length, in words that no other owner (nearly) says."""
        order = np.lexsort((owner, self.said))
        said, whose = self.said[order], owner[order]
        elsewhere = (said[1:] == said[:-1]) & (whose[1:] != whose[:-1])
        repeated = np.isin(self.said, said[1:][elsewhere]) | self.sketches.elsewhere(owner)
        return np.bincount(owner, self.length * repeated) * 2 <= np.bincount(owner, self.length)


def _held_out(rows: npt.NDArray[np.int64], by: Literal["conversation", "time"]) -> HeldOut | None:
    return HeldOut(frozenset(rows.tolist()), by) if len(rows) >= HELD_OUT_LEAST else None
