"""Which positions of a batch are prompt, from what a forward pass knows: labels, or generate()'s own prompt."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

from adapters_store.preft.positions import adapted

IGNORED = -100


class PromptEndUnknown(ValueError):
    """A prefill-only adapter was asked to run where nobody said how long the prompt is."""

    def __init__(self) -> None:
        super().__init__(
            "A prefill-only adapter needs to know where the prompt ends: pass `labels` (-100 on the prompt) or "
            "`prompt_mask` [batch, tokens], or call generate() of the PEFT model."
        )


#: Tokens in the prompt of the generate() that is running in this context, padding included.
_generating: ContextVar[int | None] = ContextVar("prompt_length_of_generate", default=None)


@contextmanager
def generating(prompt_length: int) -> Iterator[None]:
    """Forwards inside are steps of one generation: prefill, chunks of it, decoding, checks of drafted tokens."""
    token = _generating.set(prompt_length)
    try:
        yield
    finally:
        _generating.reset(token)


def mask_of_generate(*, past: int, tokens: int) -> torch.Tensor | None:
    """[1, tokens] bool for the next `tokens` positions after `past` cached ones; None outside of generate()."""
    prompt_length = _generating.get()
    if prompt_length is None:
        return None
    return adapted(torch.arange(past, past + tokens), prompt_length).unsqueeze(0)


def mask_from_labels(labels: torch.Tensor, position_ids: torch.Tensor | None = None) -> torch.Tensor:
    """True strictly before the target of each row, or of each packed segment of a row.

    labels [B, T] int with IGNORED outside of the targets; position_ids [B, T] int, where a 0 starts a segment.
    Returns [B, T] bool. A row without labels is all prompt. Padding on either side is harmless: nothing attends
    to it, and a row's positions are compared with its own first label. Raises ValueError where the mask would be a
    guess: a segment that begins with a target has no prompt, so a prefill-only adapter would get no gradient from it;
    of one with two targets, the first is prompt to the second and answer to its own.
    """
    rows, tokens = labels.shape
    index = torch.arange(tokens, device=labels.device).expand(rows, tokens)
    trained = labels != IGNORED
    starts = index == 0
    if position_ids is not None:
        starts = starts | (position_ids.expand(rows, tokens) == 0)
    if bool((trained & starts).any()):
        raise ValueError(
            "A row of labels, or a packed segment of one, has no prompt: its first token is a target. Use prompt and "
            "completion data, with -100 as the label of every prompt token."
        )
    segment = starts.cumsum(dim=1) - 1
    first_target = torch.full((rows, tokens + 1), tokens, device=labels.device)
    first_target.scatter_reduce_(1, segment, torch.where(trained, index, tokens), reduce="amin")
    own = first_target.gather(1, segment)
    begins = trained & ~trained.roll(1, dims=1)
    if bool((begins & (index != own)).any()):
        raise ValueError(
            "A row of labels has several targets with a prompt between them. Make an example of each, with all before "
            "it as its prompt: an earlier answer is prompt (adapted) when a later one is the target."
        )
    return adapted(index, own)
