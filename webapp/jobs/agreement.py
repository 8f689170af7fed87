"""Comparing what was said after the same prompts: by the engine and the trainer, without the adapter and with it.

Greedy tokens are compared as long as both choose the same ones, since what follows another token is no longer the same
question. All numbers are differences of log-probabilities in nats.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from training_jobs.messages import Continuation


@dataclass(frozen=True)
class Said:
    """What the engine says after one prompt: its tokens, and at each the log-probabilities of the likeliest, by id.

    The token that it chose is among them.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[Mapping[int, float], ...]


@dataclass(frozen=True)
class Difference:
    """The largest one found, over so many tokens."""

    largest: float
    tokens: int


def from_trainer(trained: Sequence[Continuation], said: Sequence[Said]) -> Difference:
    """How far the engine is from the trainer, on the tokens that the trainer chose.

    Where the engine chooses another token, that one counts too, and ends the comparison: a tie that rounding decides
    is no disagreement, a token that the trainer finds unlikely is a large one.
    """
    found = [difference for pair in zip(trained, said, strict=True) for difference in _token_by_token(*pair)]
    return Difference(max(found), len(found))


def _token_by_token(trained: Continuation, said: Said) -> Iterator[float]:
    steps = zip(trained.tokens, trained.logprobs, trained.runners_up, said.tokens, said.logprobs, strict=True)
    for token, logprob, runner_up, chosen, listed in steps:
        difference = _apart(logprob, token, listed)
        if chosen != token:
            # The trainer gives it no more than its runner-up.
            yield max(difference, listed[chosen] - runner_up)
            return
        yield difference


def effect(base: Sequence[Said], adapted: Sequence[Said]) -> float:
    """The largest change that the adapter makes to what the engine says."""
    return max(_changes(*pair) for pair in zip(base, adapted, strict=True))


def _changes(base: Said, adapted: Said) -> float:
    largest = 0.0
    for before, after, one, other in zip(
        base.logprobs, adapted.logprobs, base.tokens, adapted.tokens, strict=True
    ):
        changes = [_apart(logprob, token, after) for token, logprob in before.items()]
        changes += [_apart(logprob, token, before) for token, logprob in after.items()]
        largest = max(largest, *changes)
        if one != other:
            break
    return largest


def _apart(logprob: float, token: int, listed: Mapping[int, float]) -> float:
    """The difference at a token, or the least that it can be if the token is not likely enough to be listed."""
    if token in listed:
        return abs(logprob - listed[token])
    return max(0.0, logprob - min(listed.values()))
