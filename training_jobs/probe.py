"""What the gate asks the engine, and what this trainer's own base model and adapter say to it."""

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import islice
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from transformers import DynamicCache

from training_jobs.attach.prompt_mask import generating, mask_of_generate
from training_jobs.attach.routing import MASK, prefill_only
from training_jobs.batches import collate
from training_jobs.examples import Example, Examples
from training_jobs.messages import PROBE_PROMPTS, PROBE_TOKENS, Continuation, Probe, Question
from training_jobs.score import target_logits

#: Examples whose prompts are looked at.
_LOOKED_AT = 256


@torch.no_grad()
def probe_make(model: PeftModel, examples: Examples, *, max_tokens: int, pad: int) -> Probe:
    """The answers of `model` (in evaluation mode), without its adapter and with it, to a few prompts of `examples`.

    Held-out prompts if there are any. Prompt and answer have at most `max_tokens` together.
    """
    prompts = _prompts(examples)
    count = min(PROBE_TOKENS, max_tokens - max(map(len, prompts)))
    answers = []
    for only_base, said in zip((True, False), _said(model, prompts, count, pad=pad), strict=True):
        with model.disable_adapter() if only_base else nullcontext():
            answers.append(_scored(model, prompts, said, pad=pad))
    return Probe(
        questions=tuple(
            Question(prompt=prompt, base=base, adapted=adapted)
            for prompt, base, adapted in zip(prompts, *answers, strict=True)
        )
    )


def _prompts(examples: Examples) -> list[tuple[int, ...]]:
    """The shortest that differ: they cost least, and leave the most room for an answer."""
    rows = examples.held_out if len(examples.held_out) else examples.train
    prompts = {tuple(row.tokens[: row.prompt_length].tolist()) for row in islice(rows, _LOOKED_AT)}
    return sorted(prompts, key=lambda prompt: (len(prompt), prompt))[:PROBE_PROMPTS]


def _said(
    model: PeftModel, prompts: Sequence[Sequence[int]], count: int, *, pad: int
) -> tuple[list[list[int]], list[list[int]]]:
    """The next `count` tokens of each prompt, without the adapter and with it.

    A row that a prefill-only adapter leaves alone is the base model's, so both are one batch, of half the passes.
    """
    if prefill_only(model):
        adapted = torch.arange(2 * len(prompts), device=model.device) >= len(prompts)
        said = _greedy(model, [*prompts, *prompts], count, pad=pad, adapted=adapted)
        return said[: len(prompts)], said[len(prompts) :]
    with model.disable_adapter():
        base = _greedy(model, prompts, count, pad=pad)
    return base, _greedy(model, prompts, count, pad=pad)


def _greedy(
    model: PeftModel,
    prompts: Sequence[Sequence[int]],
    count: int,
    *,
    pad: int,
    adapted: torch.Tensor | None = None,
) -> list[list[int]]:
    """The next `count` tokens of each prompt, whatever they are: an end of the turn ends nothing here.

    By hand, because generate() follows what the base model's folder says of sampling and of ends. `adapted` [B] bool:
    the rows that a prefill-only adapter acts on, all of them if None.
    """
    batch = _laid_out([Example(np.array(prompt), len(prompt)) for prompt in prompts], model, pad=pad)
    ids, seen, positions = (batch[name] for name in ("input_ids", "attention_mask", "position_ids"))
    cache: Any = DynamicCache(config=model.config)
    said = []
    routed: dict[str, torch.Tensor] = {}
    with generating(ids.shape[1]):
        for _ in range(count):
            if adapted is not None:
                mask = mask_of_generate(past=cache.get_seq_length(), tokens=ids.shape[1])
                assert mask is not None
                routed[MASK] = mask.to(adapted.device) & adapted[:, None]
            logits = model(
                input_ids=ids,
                attention_mask=seen,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
                **routed,
            ).logits[:, -1]
            ids = logits.argmax(dim=-1, keepdim=True)
            said.append(ids)
            seen = torch.cat([seen, torch.ones_like(ids)], dim=1)
            positions = positions[:, -1:] + 1
    answers: list[list[int]] = torch.cat(said, dim=1).tolist()
    return answers


def _scored(
    model: PeftModel, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], *, pad: int
) -> list[Continuation]:
    """The answers as targets of one pass: what training computes, not how they came about."""
    pairs = zip(prompts, answers, strict=True)
    rows = [Example(np.array([*prompt, *answer]), len(prompt)) for prompt, answer in pairs]
    logits, targets = target_logits(model, _laid_out(rows, model, pad=pad))
    logprobs = logits.float().log_softmax(dim=-1)
    own = logprobs.gather(1, targets[:, None])
    others = logprobs.scatter(1, targets[:, None], -torch.inf).amax(dim=-1)
    of_rows = (tensor.reshape(len(prompts), -1).tolist() for tensor in (own, others))
    return [
        Continuation(tokens=tuple(answer), logprobs=tuple(logprobs), runners_up=tuple(runners_up))
        for answer, logprobs, runners_up in zip(answers, *of_rows, strict=True)
    ]


def _laid_out(rows: Sequence[Example], model: PeftModel, *, pad: int) -> dict[str, torch.Tensor]:
    return {name: tensor.to(model.device) for name, tensor in collate(rows, pad=pad).items()}
