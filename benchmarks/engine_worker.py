"""One engine in its own process, told over its standard input what to run: python -m benchmarks.engine_worker.

All engines of a benchmark stay up, and each works only while it is told to, so that a machine's moods meet all of them
alike. The first line says what to start; then a line has a run's requests, or for how long to go on with it. Answers
are marked, because libraries print to the same output.
"""

import json
import os
import sys
from typing import Any

from benchmarks.kinds import with_plugin
from benchmarks.stepping import EngineFault, Run, Stepper
from benchmarks.workload import Request, requests_of

#: Marks our lines among whatever else is printed.
ANSWER = "@@answer "
#: So many adapters of a kind are looked at, and so many prompts each.
LOOKED_AT, PROMPTS = 16, 3


def _environment(engine: str) -> None:
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_STREAM": "ext://sys.stderr",
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "2",
        # A figure says how many adapters are in memory, whatever they weigh.
        "ATTUNE_ADAPTER_MEMORY_BYTES": str(10**12),
        "VLLM_PLUGINS": "attune" if with_plugin(engine) else "none",
    }


class Engine:
    """`spec`: engine, options of vllm.LLM, folders (serving name and path of each adapter), kinds (each one's
    adapters, as first and one past the last), batch (measured requests at once)."""

    def __init__(self, spec: dict[str, Any]) -> None:
        from vllm import LLM
        from vllm.lora.request import LoRARequest

        self.spec = spec
        stock = spec["engine"] == "stock"
        self._llm = LLM(**spec["options"])
        self._stepper = Stepper(
            self._llm,
            [
                LoRARequest(f"stock-{index}" if stock else name, index + 1, path)
                for index, (name, path) in enumerate(spec["folders"])
            ],
        )

    def different(self) -> tuple[int, int]:
        """How many models answer three prompts differently, and how many there are: adapters and, but for stock LoRA,
        the base.

        Three, because a random adapter that acts on every token may end in the same loop as another one.
        """
        models = [
            index
            for first, end in self.spec["kinds"].values()
            for index in range(first, end, max(1, (end - first) // LOOKED_AT))
        ]
        if (
            self.spec["engine"] != "stock"
        ):  # on CPUs it gives a request without an adapter that of the last slot
            models.append(-1)
        prompts = [request.prompt for request in _punica(PROMPTS, seed=20_000)]
        run = self._unmeasured([Request(prompt, 12, model) for model in models for prompt in prompts])
        answers = [stream.answer for stream in run.streams]
        said = {str(answers[at : at + PROMPTS]) for at in range(0, len(answers), PROMPTS)}
        return len(said), len(models)

    def warm_up(self) -> None:
        """A batch of ordinary requests, then one short one for every adapter, so that memory holds what it can."""
        ordinary = _punica(self.spec["options"]["max_num_seqs"], seed=10_000)
        for first, _ in self.spec["kinds"].values() or [(-1, 0)]:
            self._unmeasured([Request(request.prompt, request.output, first) for request in ordinary])
        every = _punica(len(self.spec["folders"]), seed=10_001)
        self._unmeasured([Request(request.prompt[:4], 1, index) for index, request in enumerate(every)])

    def begin(self, requests: list[Request], arrivals: list[Request]) -> Run:
        """A run that has not worked yet. It finds no KV of those before it, whose prompts may have been the same."""
        if not self._llm.reset_prefix_cache():
            raise EngineFault("The prefix cache could not be emptied: blocks are still in use.")
        return Run(self._stepper, requests, batch=self.spec["batch"], arrivals=arrivals)

    def _unmeasured(self, requests: list[Request]) -> Run:
        run = Run(self._stepper, requests, batch=self.spec["options"]["max_num_seqs"])
        run.advance()
        return run


def _punica(count: int, *, seed: int) -> list[Request]:
    return requests_of(profile="punica", mix="identical", count=count, adapters=1, max_tokens=48, seed=seed)


def _answer(result: dict[str, Any]) -> None:
    print(ANSWER + json.dumps(result), flush=True)


def _told(run: Run) -> dict[str, Any]:
    streams = [
        {
            "prompt": len(stream.prompt),
            "turn": stream.turn,
            "arrived": stream.arrived,
            "added": stream.added,
            "stamps": stream.stamps,
            "answer": stream.answer,
        }
        for stream in run.streams
    ]
    return {"seconds": run.seconds, "read": run.read, "streams": streams}


def main() -> None:
    spec = json.loads(sys.stdin.readline())
    _environment(spec["engine"])
    engine = Engine(spec)
    different, models = engine.different()
    engine.warm_up()
    _answer({"different": different, "models": models})
    for line in sys.stdin:
        told = json.loads(line)
        if "requests" in told:
            asked = {
                part: [Request(**request) for request in told[part]] for part in ("requests", "arrivals")
            }
            run = engine.begin(**asked)
        else:
            _answer(_told(run) if run.advance(told["advance"]) else {"paused": True})


if __name__ == "__main__":
    main()
