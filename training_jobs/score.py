"""How well a model predicts targets, scoring nothing but them."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from peft import PeftModel
from torch.nn import functional as F
from transformers import PreTrainedModel

from training_jobs.attach.chosen import ROWS, RowAdapters
from training_jobs.attach.prompt_mask import IGNORED, mask_from_labels
from training_jobs.attach.routing import MASK, prefill_only
from training_jobs.batches import collate, packed, packing_pays
from training_jobs.examples import Example


def target_logits(
    model: PreTrainedModel | PeftModel,
    batch: dict[str, torch.Tensor],
    adapters: Sequence[str] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What the (adapted) model says where a batch has targets, and those: [targets, vocabulary], [targets] int64.

    `batch` as `collate` or `packed` makes it. `adapters`: the one that each row goes through, the active one if None;
    packed rows all go through that. The last layer is computed where there are targets alone, through the model's own
    forward, so that soft-capped and scaled logits stay what they are.
    """
    labels = batch["labels"]
    columns = (labels != IGNORED).any(dim=0).nonzero().squeeze(1)
    routed: dict[str, Any] = {}
    if prefill_only(model):
        routed[MASK] = mask_from_labels(labels, batch["position_ids"])
    if adapters is not None:
        routed[ROWS] = RowAdapters.of(adapters, labels.device)
    logits = model(
        input_ids=batch["input_ids"],
        attention_mask=batch.get("attention_mask"),
        position_ids=batch["position_ids"],
        logits_to_keep=columns - 1,
        use_cache=False,
        **routed,
    ).logits
    targets = labels[:, columns]
    kept = targets != IGNORED
    return logits[kept], targets[kept]


def target_nll(model: PeftModel, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The summed negative log-likelihood (nats, scalar float32) of a batch's targets under the adapted model."""
    logits, targets = target_logits(model, _laid_out(batch))
    return F.cross_entropy(logits.float(), targets, reduction="sum")


def _laid_out(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return packed(batch) if packing_pays(batch) else batch


def row_nlls(
    model: PreTrainedModel | PeftModel, batch: dict[str, torch.Tensor], adapters: Sequence[str] | None = None
) -> torch.Tensor:
    """The summed negative log-likelihood (nats) of each row's target: [B] float32. `adapters` as in `target_logits`."""
    logits, targets = target_logits(model, _laid_out(batch) if adapters is None else batch, adapters)
    of_tokens = F.cross_entropy(logits.float(), targets, reduction="none")
    lengths = (batch["labels"] != IGNORED).sum(dim=1).tolist()
    return torch.stack([row.sum() for row in of_tokens.split(lengths)])


@torch.no_grad()
def example_nlls(
    model: PeftModel,
    examples: Sequence[Example],
    *,
    batch_size: int,
    pad: int,
    before_batch: Callable[[], None] = lambda: None,
    adapters: Sequence[str] | None = None,
) -> list[float]:
    """Summed negative log-likelihood (nats) of each example's target, in evaluation mode; the mode is restored.

    `before_batch` is called before each batch and may raise to end it. `adapters`: of each example, the active one if
    None.
    """
    training = model.training
    model.eval()
    device = next(model.parameters()).device
    by_length = sorted(range(len(examples)), key=lambda index: len(examples[index].tokens))
    nlls = [0.0] * len(examples)
    for start in range(0, len(by_length), batch_size):
        before_batch()
        chosen = by_length[start : start + batch_size]
        own = None if adapters is None else [adapters[index] for index in chosen]
        batch = collate([examples[index] for index in chosen], pad=pad)
        found = row_nlls(model, {name: tensor.to(device) for name, tensor in batch.items()}, own)
        for index, nll in zip(chosen, found.tolist(), strict=True):
            nlls[index] = nll
    model.train(training)
    return nlls
