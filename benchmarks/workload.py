"""What the engines are asked: lengths, adapters and prompts of one seed, as the paper has them (appendix E.1)."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

#: Prompt tokens: lognormal with this shape, location and scale.
SIGMA, LOC, SCALE = 0.8, -1.0, 18.0
#: Prompts are of these token ids, every one as likely.
TOKENS = (100, 32_000)
#: Of a chat.
TURNS = 5
#: The mix "skewed": the k-th most popular adapter is asked for in proportion to k to the power of minus this.
ZIPF = 1.0

Lengths = Callable[[np.random.Generator, int, int], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Request:
    """A prompt of token ids, how many tokens to answer with (always reached), and which adapter (-1: none)."""

    prompt: list[int]
    output: int
    adapter: int
    #: A chat's turns after the first: the message's tokens, and how many to answer with. The prompt of each is
    #: everything before it and the message.
    later: list[tuple[list[int], int]] = field(default_factory=list)


def requests_of(
    *, profile: str, mix: str, count: int, adapters: int, max_tokens: int, seed: int
) -> list[Request]:
    """`count` requests, none (no chat, all turns together) longer than `max_tokens`.

    Lengths and prompts are those of the seed alone: mixes and numbers of adapters are compared on the same ones.
    """
    rng = np.random.default_rng([seed, 0])
    turns = TURNS if profile == "chat" else 1
    lengths = [PROFILES[profile](rng, count, max_tokens) for _ in range(turns)]
    which = MIXES[mix](np.random.default_rng([seed, 1]), count, adapters, seed)
    asked = []
    for index in range(count):
        messages = [
            (rng.integers(*TOKENS, prompts[index]).tolist(), int(outputs[index]))
            for prompts, outputs in lengths
        ]
        (prompt, output), *later = messages
        asked.append(Request(prompt, output, int(which[index]), later))
    return asked


def _prompts(rng: np.random.Generator, count: int, longest: int) -> np.ndarray:
    return np.clip(rng.lognormal(np.log(SCALE), SIGMA, count) + LOC, 1, longest).astype(int)


def _punica(rng: np.random.Generator, count: int, max_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Lognormal prompts; prompt and output together uniform up to the most."""
    prompts = _prompts(rng, count, max_tokens - 1)
    totals = rng.integers(2, max_tokens + 1, count)
    return prompts, np.maximum(totals - prompts, 1)


def _short(rng: np.random.Generator, count: int, max_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Lognormal prompts, and outputs as short as they are."""
    prompts = _prompts(rng, count, max_tokens // 2)
    return prompts, prompts


def _long_prompt(rng: np.random.Generator, count: int, max_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Prompts of half to seven eighths of the most, outputs of a sixteenth to an eighth."""
    part = max_tokens // 16
    return rng.integers(8 * part, 14 * part + 1, count), rng.integers(part, 2 * part + 1, count)


def _chat(rng: np.random.Generator, count: int, max_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """One turn of five: a message of two to four sixths of a fifth of the most, an answer of one to two sixths."""
    part = max_tokens // (6 * TURNS)
    return rng.integers(2 * part, 4 * part + 1, count), rng.integers(part, 2 * part + 1, count)


PROFILES: dict[str, Lengths] = {
    "punica": _punica,
    "short": _short,
    "long-prompt": _long_prompt,
    "chat": _chat,
}


def _identical(rng: np.random.Generator, count: int, adapters: int, seed: int) -> np.ndarray:
    return np.zeros(count, int)


def _uniform(rng: np.random.Generator, count: int, adapters: int, seed: int) -> np.ndarray:
    return rng.integers(0, adapters, count)


def _skewed(rng: np.random.Generator, count: int, adapters: int, seed: int) -> np.ndarray:
    weights = np.arange(1, adapters + 1) ** -ZIPF
    return rng.choice(adapters, count, p=weights / weights.sum())


def _distinct(rng: np.random.Generator, count: int, adapters: int, seed: int) -> np.ndarray:
    """Each adapter as often as any other; the next seed goes on where this one ends."""
    return rng.permutation((seed * count + np.arange(count)) % adapters)


MIXES = {"identical": _identical, "uniform": _uniform, "skewed": _skewed, "distinct": _distinct}
