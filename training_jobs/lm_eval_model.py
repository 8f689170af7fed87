"""EleutherAI's lm-eval on models with prefill-only adapters: it tells the model where each prompt ends.

lm-eval's own class concatenates context and continuation, and a forward of those raises PromptEndUnknown.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from lm_eval.models.huggingface import HFLM
from tqdm import tqdm

from training_jobs.attach.prompt_mask import PromptEndUnknown
from training_jobs.attach.routing import prefill_only
from training_jobs.batches import collate
from training_jobs.examples import Example
from training_jobs.score import target_logits

#: As lm-eval hands them on: the texts, the ids of the context, those of the continuation.
Asked = tuple[tuple[str, str] | None, list[int], list[int]]


class PreftLM(HFLM):
    """`PreftLM(pretrained=model, tokenizer=tokenizer, batch_size=8)` for `lm_eval.simple_evaluate`.

    `model`: a PeftModel with an adapter of any method and position, or a model without one. The context of a request
    is the prompt (paper, 3.1), its continuation what is scored or generated. Tasks that score a text without a context
    (loglikelihood_rolling) raise PromptEndUnknown if its adapter is prefill-only.
    """

    @torch.no_grad()
    def _loglikelihood_tokens(
        self, requests: Sequence[Asked], disable_tqdm: bool = False, override_bs: int | None = None
    ) -> list[tuple[float, bool]]:
        """Of each continuation its log-likelihood (nats), and whether it is the greedy one."""
        rows = [self._row(context, continuation) for _, context, continuation in requests]
        longest_first = sorted(range(len(rows)), key=lambda index: -len(rows[index].tokens))
        size = override_bs or self.batch_size
        if not isinstance(size, int):
            raise ValueError("Give batch_size as a number: PreftLM does not find one by itself.")
        found = [(0.0, False)] * len(rows)
        with tqdm(total=len(rows), disable=disable_tqdm, desc="Scoring continuations") as bar:
            for start in range(0, len(rows), size):
                chosen = longest_first[start : start + size]
                for index, answer in zip(
                    chosen, self._scored([rows[index] for index in chosen]), strict=True
                ):
                    found[index] = answer
                    if requests[index][0] is not None:
                        self.cache_hook.add_partial("loglikelihood", requests[index][0], answer)
                bar.update(len(chosen))
        return found

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
        """Raises PromptEndUnknown for a prefill-only adapter: a text that is no answer has no prompt."""
        if prefill_only(self.model):
            raise PromptEndUnknown
        return super().loglikelihood_rolling(requests, disable_tqdm)

    def _row(self, context: list[int], continuation: list[int]) -> Example:
        """Cut at its beginning to what the model takes. Raises ValueError where that leaves nothing of the prompt."""
        if len(continuation) >= self.max_length:
            raise ValueError(
                f"A continuation has {len(continuation)} tokens and leaves no room for a prompt: the model takes "
                f"{self.max_length}. Choose tasks with shorter ones, or give a larger max_length."
            )
        tokens = [*context, *continuation][-self.max_length :]
        return Example(np.array(tokens, dtype=np.int32), len(tokens) - len(continuation))

    def _scored(self, rows: Sequence[Example]) -> list[tuple[float, bool]]:
        batch = collate(rows, pad=self.tokenizer.pad_token_id)
        logits, targets = target_logits(
            self.model, {name: tensor.to(self.device) for name, tensor in batch.items()}
        )
        logprobs = logits.float().log_softmax(dim=-1)
        own = logprobs.gather(1, targets[:, None])[:, 0]
        greedy = logprobs.argmax(dim=-1) == targets
        lengths = [row.target_length for row in rows]
        return [
            (float(said.sum()), bool(right.all()))
            for said, right in zip(own.split(lengths), greedy.split(lengths), strict=True)
        ]
