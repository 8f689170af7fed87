"""What an adapter must make the model say, computed with transformers and nothing of ours but the formulas.

The delta is added by forward hooks to the float32 model; which rows get it is said per call. Tokens are compared only
where the reference itself is sure: from the first position whose two best logits are closer than MARGIN, no more.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from adapters_store.preft.lora import lora_delta
from adapters_store.preft.reft import direft_delta, loreft_delta
from tests.inference.adapters import Adapter

MARGIN = 1e-3


class Reference:
    def __init__(self, folder: Path) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def two_phase(self, prompt: Sequence[int], answer: Sequence[int], adapter: Adapter | None) -> "Scores":
        """Prompt with the adapter into a KV cache, then the answer on top of it (position all: with it, too)."""
        cache = DynamicCache(config=self.model.config)
        everywhere = adapter is not None and adapter.manifest.position == "all"
        first = self._logits(prompt, adapter, [True] * len(prompt), cache, keep=1)
        rest = (
            self._logits(answer[:-1], adapter, [everywhere] * (len(answer) - 1), cache)
            if answer[1:]
            else first[:0]
        )
        return Scores(torch.cat([first, rest]))

    def greedy(self, prompt: Sequence[int], count: int, adapter: Adapter | None) -> list[int]:
        """Token by token, as one would decode by hand."""
        cache = DynamicCache(config=self.model.config)
        everywhere = adapter is not None and adapter.manifest.position == "all"
        answer = [int(self._logits(prompt, adapter, [True] * len(prompt), cache, keep=1)[-1].argmax())]
        while len(answer) < count:
            answer.append(int(self._logits(answer[-1:], adapter, [everywhere], cache)[-1].argmax()))
        return answer

    @torch.no_grad()
    def _logits(
        self,
        tokens: Sequence[int],
        adapter: Adapter | None,
        rows: Sequence[bool],
        cache: DynamicCache | None,
        *,
        keep: int = 0,
    ) -> torch.Tensor:
        """[keep or len(tokens), vocabulary] float32 of the last tokens; the adapter acts on the rows that are True."""
        with self._hooked(adapter, torch.tensor(rows)), one_thread():
            out = self.model(
                torch.tensor([list(tokens)]),
                past_key_values=cache,
                use_cache=cache is not None,
                logits_to_keep=keep,
            )
        return out.logits[0]

    @contextmanager
    def _hooked(self, adapter: Adapter | None, rows: torch.Tensor) -> Iterator[None]:
        hooks = [] if adapter is None or not rows.any() else list(self._hooks(adapter, rows[:, None]))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _hooks(self, adapter: Adapter, rows: torch.Tensor) -> Iterator[torch.utils.hooks.RemovableHandle]:
        scale, t = adapter.manifest.scale, {k: torch.from_numpy(v) for k, v in adapter.tensors.items()}
        for index, layer in enumerate(self.model.model.layers):
            at = f"base_model.model.model.layers.{index}"
            for name, module in layer.named_modules():
                if f"{at}.{name}.lora_A.weight" in t:
                    a, b = t[f"{at}.{name}.lora_A.weight"], t[f"{at}.{name}.lora_B.weight"]
                    yield module.register_forward_hook(_linear_hook(a, b, scale, rows))
            if f"{at}.direft_A.weight" in t:
                parts = (t[f"{at}.direft_A.weight"], t[f"{at}.direft_A.bias"], t[f"{at}.direft_B.weight"])
                yield layer.register_forward_hook(_stream_hook(direft_delta, parts, scale, rows))
            if f"{at}.loreft_R.weight" in t:
                parts = (t[f"{at}.loreft_R.weight"], t[f"{at}.loreft_W.weight"], t[f"{at}.loreft_W.bias"])
                yield layer.register_forward_hook(_stream_hook(loreft_delta, parts, scale, rows))


@contextmanager
def one_thread() -> Iterator[None]:
    """Threads that share their cores with an engine spend most of their time waiting for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _linear_hook(a: torch.Tensor, b: torch.Tensor, scale: float, rows: torch.Tensor):
    return lambda module, inputs, out: out + lora_delta(inputs[0], a, b, scale) * rows


def _stream_hook(delta, parts: tuple[torch.Tensor, ...], scale: float, rows: torch.Tensor):
    def hook(module, inputs, out):
        h = out[0] if isinstance(out, tuple) else out
        h = h + delta(h, *parts, scale) * rows
        return (h, *out[1:]) if isinstance(out, tuple) else h

    return hook


class Scores:
    """The reference's logits for an answer's positions: [len(answer), vocabulary]."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits
        best = logits.topk(2).values
        close = (best[:, 0] - best[:, 1] < MARGIN).nonzero()
        #: The greedy tokens, up to where the reference is not sure of them.
        self.sure = logits.argmax(-1).tolist()[: int(close[0]) if len(close) else len(logits)]

    def agrees(self, answer: Sequence[int]) -> bool:
        return list(answer[: len(self.sure)]) == self.sure
