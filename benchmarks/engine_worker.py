"""One engine in its own process, told over its standard input what to run: python -m benchmarks.engine_worker.

All engines of a benchmark stay up while each runs in turn, so that a machine's moods meet all of them alike.
"""

import json
import os
import sys
import time
from dataclasses import asdict
from typing import Any

from benchmarks.workload import Request, punica

#: Marks our lines among whatever vLLM prints.
ANSWER = "@@answer "
ENGINES = ("base", "lora_stock", "lora_p", "direft_p")
#: The others are vLLM without us.
WITH_PLUGIN = ("lora_p", "direft_p")


def _environment(engine: str) -> None:
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_PLUGINS": "attune" if engine in WITH_PLUGIN else "none",
    }


class Engine:
    def __init__(self, engine: str, spec: dict[str, Any]) -> None:
        from vllm import LLM
        from vllm.lora.request import LoRARequest

        self.engine = engine
        self.llm = LLM(**spec["options"])
        self.adapters = [
            LoRARequest(name if engine != "lora_stock" else f"stock-{index}", index + 1, path)
            for index, (name, path) in enumerate(spec["folders"])
        ]

    def run(self, requests: list[Request]) -> float:
        """Seconds to answer all requests, first come, first served."""
        began = time.perf_counter()
        self.answers(requests)
        return time.perf_counter() - began

    def answers(self, requests: list[Request]) -> list[list[int]]:
        from vllm import SamplingParams

        outputs = self.llm.generate(
            [{"prompt_token_ids": request.prompt} for request in requests],
            [SamplingParams(temperature=0, max_tokens=r.output, ignore_eos=True) for r in requests],
            lora_request=[self._adapter(request.adapter) for request in requests],
            use_tqdm=False,
        )
        return [list(output.outputs[0].token_ids) for output in outputs]

    def distinct_answers(self) -> int:
        """How many models answer three prompts differently: all adapters and, but for stock LoRA, the base.

        Three, because a random adapter that acts on every token may end in the same loop as another one.
        """
        prompts = [request.prompt for request in punica(count=3, adapters=1, max_tokens=64, seed=20_000)]
        models = list(range(len(self.adapters)))
        if self.engine != "lora_stock":  # on CPUs it gives a request without an adapter that of the last slot
            models.append(-1)
        answers = self.answers([Request(prompt, 12, model) for model in models for prompt in prompts])
        said = [
            [token for answer in answers[at : at + 3] for token in answer] for at in range(0, len(answers), 3)
        ]
        return len(set(map(tuple, said)))

    def _adapter(self, index: int) -> Any:
        return self.adapters[index] if self.adapters and index >= 0 else None


def main() -> None:
    name, spec = sys.argv[1], json.loads(sys.argv[2])
    _environment(name)
    engine = Engine(name, spec)
    print(ANSWER + json.dumps({"distinct": engine.distinct_answers()}), flush=True)
    for line in sys.stdin:
        requests = [Request(**request) for request in json.loads(line)]
        print(ANSWER + json.dumps({"seconds": engine.run(requests)}), flush=True)


def command(requests: list[Request]) -> str:
    """The line that makes a worker run these requests."""
    return json.dumps([asdict(request) for request in requests]) + "\n"


if __name__ == "__main__":
    main()
