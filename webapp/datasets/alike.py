"""Texts that say nearly the same, found without holding any of them, by sketches of 64 bytes each.

A text is the set of all runs of six characters in its plain words, and two are alike if they have about two thirds of
their runs in common, as far as a MinHash of 32 places tells it (one permutation: Li, Owen & Zhang 2012; empty places
filled by rotation: Shrivastava & Li 2014). Candidates are found by three equal places in a row, by sorting.
"""

from array import array
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from webapp.datasets.fingerprint import digest_of

#: In shorter texts one word makes the difference: they are alike if they are the same.
SHORTEST = 40
_LONGEST = 100_000
_RUN = 6
_PLACES, _ALIKE, _BAND = 32, 21, 3
_BASE, _MIX, _STEP = (
    np.uint64(0xC2B2AE3D27D4EB4F),
    np.uint64(0xFF51AFD7ED558CCD),
    np.uint64(0x9E3779B97F4A7C15),
)
#: The first bits of a hash are its place.
_PLACE_BITS, _NONE = np.uint64(64 - _PLACES.bit_length() + 1), np.uint64(2**64 - 1)
#: What makes one hash many.
_SPREAD = np.arange(_PLACES, dtype=np.uint64) * _STEP
_HALF = np.uint64(32)
#: Pairs that are compared at once, and characters that are sketched at once: a few megabytes each.
_AT_ONCE, _WAITING = 1 << 16, 1 << 16

Numbers = npt.NDArray[np.int64]


class Sketches:
    """Of many texts, numbered in the order in which they were added."""

    def __init__(self) -> None:
        self._places = array("H")
        #: Texts that are yet to be sketched: many at once take a fraction of the time.
        self._waiting: list[str] = []
        self._size = 0

    def __len__(self) -> int:
        return len(self._places) // _PLACES + len(self._waiting)

    def add(self, words: str) -> None:
        """A text as `fingerprint.plain` has it. Of a very long one the beginning is enough."""
        self._waiting.append(words[:_LONGEST])
        self._size += len(self._waiting[-1])
        if self._size > _WAITING or len(self._waiting) > _WAITING // _PLACES:
            self._sketch()

    def _sketch(self) -> None:
        sketches = np.empty((len(self._waiting), _PLACES), np.uint16)
        long = [at for at, words in enumerate(self._waiting) if len(words) >= SHORTEST]
        for at, words in enumerate(self._waiting):
            if len(words) < SHORTEST:
                sketches[at] = _whole(words)
        if long:
            sketches[long] = _by_runs([self._waiting[at] for at in long])
        self._places.frombytes(sketches.tobytes())
        self._waiting, self._size = [], 0

    def alike(self, rank: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
        """Numbers of texts, first and second of pairs that are alike, the first of the lower `rank` [len(self)].

        Of many texts that are alike some pairs are passed over, but each text is in one with the first of them.
        """
        ranked = np.argsort(rank, kind="stable")
        for start in range(0, _PLACES - _BAND + 1, _BAND):
            for first, second in _candidates(self._sketches[:, start : start + _BAND], ranked):
                for at in range(0, len(first), _AT_ONCE):
                    a, b = first[at : at + _AT_ONCE], second[at : at + _AT_ONCE]
                    same = self.are_alike(a, b)
                    yield a[same], b[same]

    def are_alike(self, first: Numbers, second: Numbers) -> npt.NDArray[np.bool_]:
        """Of pairs of texts."""
        sketches = self._sketches
        return (sketches[first] == sketches[second]).sum(axis=1) >= _ALIKE

    @property
    def _sketches(self) -> npt.NDArray[np.uint16]:
        if self._waiting:
            self._sketch()
        return np.frombuffer(self._places, np.uint16).reshape(-1, _PLACES)

    def elsewhere(self, owner: Numbers) -> npt.NDArray[np.bool_]:
        """Which texts are alike to one of another `owner` [len(self)]."""
        found = np.zeros(len(self), np.bool_)
        for first, second in self.alike(owner):
            others = owner[first] != owner[second]
            found[first[others]] = found[second[others]] = True
        return found


def _candidates(band: npt.NDArray[np.uint16], ranked: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
    """Pairs that have the band in common: each with the first of those that do, and with the one before it."""
    key = np.zeros(len(band), np.uint64)
    for column in band.T:
        key = (key << np.uint64(16)) | column
    order = ranked[np.argsort(key[ranked], kind="stable")]
    begins = np.flatnonzero(np.diff(key[order], prepend=key[order][:1] ^ np.uint64(1)))
    first = np.repeat(begins, np.diff(begins, append=len(order)))
    places = np.arange(len(order))
    later = places > first
    yield order[first[later]], order[places[later]]
    further = places > first + 1
    yield order[places[further] - 1], order[places[further]]


def _whole(words: str) -> npt.NDArray[np.uint16]:
    """[32], of a text that is compared as a whole."""
    spread = (np.uint64(digest_of([words])) + _SPREAD) * _MIX
    return ((spread ^ (spread >> _HALF)) * _MIX >> _HALF).astype(np.uint16)


def _by_runs(texts: list[str]) -> npt.NDArray[np.uint16]:
    """[texts, 32]: of the smallest hash in each place some bits further down."""
    parts = [words.encode("utf-16-le", "surrogatepass") for words in texts]
    lengths = np.array([len(part) // 2 for part in parts])
    raw, count = b"".join(parts), int(lengths.sum()) - _RUN + 1
    # Four characters are eight bytes: each number begins two bytes after the one before it, and two of them are a run.
    fours = np.ndarray((count + 2,), dtype="<u8", buffer=raw, strides=(2,)).copy()
    hashes = fours[:count] * _BASE
    hashes += fours[2:]
    hashes ^= hashes >> _HALF
    hashes *= _MIX
    text = np.repeat(np.arange(len(texts)), lengths)[:count]
    within = np.arange(_RUN, count + _RUN) <= np.cumsum(lengths)[text]
    smallest = np.full(len(texts) * _PLACES, _NONE)
    place = text * _PLACES + (hashes >> _PLACE_BITS).astype(np.int64)
    np.minimum.at(smallest, place[within], hashes[within])
    return (_filled(smallest.reshape(-1, _PLACES)) >> _HALF).astype(np.uint16)


def _filled(smallest: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Each empty place with what is in the next one that is not, the first after the last."""
    own = np.where(smallest == _NONE, 2 * _PLACES, np.arange(_PLACES))
    twice = np.hstack([own, own + _PLACES])
    following = np.minimum.accumulate(twice[:, ::-1], axis=1)[:, ::-1][:, :_PLACES] % _PLACES
    return np.take_along_axis(smallest, following, axis=1)
