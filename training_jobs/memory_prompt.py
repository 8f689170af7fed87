"""What one could do instead of training: tell the base model, in a system prompt, what the data says.

An adapter that does no better than this has nothing to show for its training.
"""

from bisect import insort
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Literal, NamedTuple

import torch
from torch.nn import functional as F
from transformers import DynamicCache, PreTrainedModel

from adapters_store.chat_template import ChatEncoder, TemplateRefused, TooLong
from training_jobs.messages import Turn

#: Held-out targets that are scored with it: each costs as much as its own prompt, and a reader needs no more.
MOST_TARGETS = 16
#: Of the prompt: so many tokens, and no more than this share of what the model takes.
_MOST_TOKENS, _SHARE = 1000, 4
#: So many rows that do not fit into what room is left, and no more are tried.
_MOST_MISSES = 20
_OPENING = "Answer as the assistant does in these conversations."


class HeldOut(NamedTuple):
    """A held-out turn, the last of `turns`: so many of its conversation come before it, and its example's number."""

    before: int
    number: int
    turns: Sequence[Turn]


class Prompted(NamedTuple):
    """A held-out target under the memory prompt: the number of its example, the ids of the prompt and its own."""

    number: int
    prompt: list[int]
    target: list[int]


@dataclass
class MemoryPrompt:
    """Gathered while the rows are read: the first training conversations that fit, and `most` held-out turns, the first
    ones of all conversations before the second ones: many of one conversation are one witness."""

    most: int = MOST_TARGETS
    quotes: list[str] = field(default_factory=list)
    tokens: int = 0
    held_out: list[HeldOut] = field(default_factory=list)
    _misses: int = 0

    def quote(self, turns: Sequence[Turn], encoder: ChatEncoder, *, max_tokens: int) -> None:
        """A training conversation, if there is room for it in a model of `max_tokens`."""
        if self._misses == _MOST_MISSES:
            return
        room = min(_MOST_TOKENS, max_tokens // _SHARE) - self.tokens
        quoted = "\n".join(f"{turn.role}: {turn.content}" for turn in turns)
        needed = encoder.count(f"\n\n{quoted}", at_most=room)
        if needed is None:
            self._misses += 1
            return
        self.quotes.append(quoted)
        self.tokens += needed

    def judge_by(self, held_out: HeldOut) -> None:
        insort(self.held_out, held_out, key=lambda each: each[:2])
        del self.held_out[self.most :]

    def prompted(self, encoder: ChatEncoder, *, max_tokens: int) -> list[Prompted]:
        """The held-out turns that still fit behind the memory, in the order of their examples; none if nothing could be
        quoted."""
        found = []
        for _, number, turns in sorted(self.held_out if self.quotes else [], key=lambda each: each.number):
            try:
                both = self._encoded(turns, encoder, max_tokens=max_tokens)
            except TooLong:
                continue
            found.append(Prompted(number, *both))
        return found

    def _encoded(
        self, turns: Sequence[Turn], encoder: ChatEncoder, *, max_tokens: int
    ) -> tuple[list[int], list[int]]:
        try:
            return encoder.prompt_and_target(self._before(turns, role="system"), max_tokens=max_tokens)
        except TemplateRefused:  # it knows no system messages
            return encoder.prompt_and_target(self._before(turns, role="user"), max_tokens=max_tokens)

    def _before(self, turns: Sequence[Turn], *, role: Literal["system", "user"]) -> list[Turn]:
        """The memory in front of the first message if that is of `role`, else as a message of its own."""
        memory = "\n\n".join([_OPENING, *self.quotes])
        if turns[0].role == role:
            return [Turn(role=role, content=f"{memory}\n\n{turns[0].content}"), *turns[1:]]
        return [Turn(role=role, content=memory), *turns]


@torch.no_grad()
def prompted_nlls(
    model: PreTrainedModel, prompted: Sequence[Prompted], *, before_each: Callable[[], None]
) -> list[float]:
    """The negative log-likelihood (nats) of each target under the base model.

    What all prompts begin with, the memory, is computed once. `before_each` may raise to end it.
    """
    columns = zip(*(each.prompt[:-1] for each in prompted), strict=False)  # up to the end of the shortest
    shared = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
    device = model.device
    memory = DynamicCache(config=model.config)
    if shared:
        before_each()
        model(
            input_ids=torch.tensor([prompted[0].prompt[:shared]], device=device),
            past_key_values=memory,
            use_cache=True,
            logits_to_keep=1,
        )
    nlls = []
    for each in prompted:
        before_each()
        logits = model(
            input_ids=torch.tensor([each.prompt[shared:] + each.target], device=device),
            past_key_values=deepcopy(memory),
            use_cache=True,
            logits_to_keep=len(each.target) + 1,
        ).logits[0, :-1]
        target = torch.tensor(each.target, device=device)
        nlls.append(F.cross_entropy(logits.float(), target, reduction="sum").item())
    return nlls
