"""Punica's requests, as the paper replicates them (appendix E.1): lengths, adapters and prompts from one seed."""

from dataclasses import dataclass

import numpy as np

#: Prompt tokens: lognormal with this shape, location and scale.
SIGMA, LOC, SCALE = 0.8, -1.0, 18.0


@dataclass(frozen=True)
class Request:
    """A prompt of token ids, how many tokens to answer with (always reached), and which adapter."""

    prompt: list[int]
    output: int
    adapter: int

    @property
    def tokens(self) -> int:
        return len(self.prompt) + self.output


def punica(*, count: int, adapters: int, max_tokens: int, seed: int) -> list[Request]:
    """Prompt lengths lognormal; prompt and output together uniform up to `max_tokens`; adapters uniform."""
    rng = np.random.default_rng(seed)
    prompts = np.clip(rng.lognormal(np.log(SCALE), SIGMA, count) + LOC, 1, max_tokens - 1).astype(int)
    totals = rng.integers(2, max_tokens + 1, count)
    outputs = np.maximum(totals - prompts, 1)
    which = rng.integers(0, adapters, count)
    return [
        Request(rng.integers(100, 32_000, length).tolist(), int(output), int(adapter))
        for length, output, adapter in zip(prompts, outputs, which, strict=True)
    ]
