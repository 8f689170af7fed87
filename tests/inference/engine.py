"""One vLLM engine in this process, made as cramped as possible, and the questions that tests put to it."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.inference.adapters import random_adapter
from tests.inference.reference import Adapter

#: Tokens of a KV block; CPUs want multiples of 32.
BLOCK = 32


@dataclass
class Question:
    prompt: list[int]
    adapter: Adapter | None = None
    count: int = 40
    answer: list[int] = field(default_factory=list)
    finish: str | None = None
    #: What SamplingParams gets besides; as it is, the answer is greedy and has `count` tokens.
    sampling: dict[str, Any] = field(default_factory=dict)


class Engine:
    """Greedy answers by vLLM, with slots for 2 adapters, memory for 6, 64 tokens a step and 28 KV blocks."""

    def __init__(self, base: Path, **options: Any) -> None:
        from inference.build import build_vllm

        self._folder = tempfile.TemporaryDirectory()
        self.first = random_adapter(
            Path(self._folder.name) / "first", base=base, method="lora", position="prefill", seed=99, rank=4
        )
        self.llm, self.first_request = build_vllm(
            base,
            self.first.folder,
            gpu_slots=2,
            cpu_slots=6,
            max_rank=16,
            block_size=BLOCK,
            max_model_len=512,
            max_num_seqs=12,
            max_num_batched_tokens=64,
            num_gpu_blocks_override=28,
            disable_log_stats=False,
            **options,
        )
        self._ids: dict[str, int] = {self.first.name: self.first_request.lora_int_id}

    @property
    def core(self) -> Any:
        return self.llm.llm_engine.engine_core.engine_core

    def lora(self, adapter: Adapter | None) -> Any:
        from vllm.lora.request import LoRARequest

        if adapter is None:
            return None
        number = self._ids.setdefault(adapter.name, len(self._ids) + 1)
        return LoRARequest(adapter.name, number, str(adapter.folder))

    def ask(self, questions: Sequence[Question]) -> list[Any]:
        """Fill in the answers of questions put all at once; returns vLLM's outputs."""
        from vllm import SamplingParams

        outputs = self.llm.generate(
            [{"prompt_token_ids": q.prompt} for q in questions],
            [
                SamplingParams(**{"temperature": 0, "max_tokens": q.count, "ignore_eos": True} | q.sampling)
                for q in questions
            ],
            lora_request=[self.lora(q.adapter) for q in questions],
            use_tqdm=False,
        )
        for question, output in zip(questions, outputs, strict=True):
            question.answer = list(output.outputs[0].token_ids)
            question.finish = output.outputs[0].finish_reason
        return outputs

    def begin(self, request_id: str, question: Question) -> None:
        """Put one question, whose answer comes step by step out of `llm.llm_engine`."""
        from vllm import SamplingParams

        self.llm.llm_engine.add_request(
            request_id,
            {"prompt_token_ids": question.prompt},
            SamplingParams(temperature=0, max_tokens=question.count, ignore_eos=True, detokenize=False),
            lora_request=self.lora(question.adapter),
        )

    def counter(self, name: str) -> int:
        return sum(metric.value for metric in self.llm.get_metrics() if metric.name == f"vllm:{name}")

    def forget_prefixes(self) -> None:
        assert self.llm.reset_prefix_cache()


def engine(base: Path, **options: Any) -> Iterator[Engine]:
    """With vLLM's own options for what is not as usual."""
    made = Engine(base, **options)
    yield made
    made.core.shutdown()
