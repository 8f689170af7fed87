"""vLLM's engine one step at a time, so that every token has the time at which it came (the paper's appendix E.3)."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.workload import Request

#: Requests that arrive while others stream do so one every so many steps.
STEPS_BETWEEN = 3


@dataclass
class Stream:
    """One answer as it comes: seconds are those of time.perf_counter()."""

    request: Request
    turn: int
    prompt: list[int]
    output: int
    arrived: bool
    added: float
    answer: list[int] = field(default_factory=list)
    stamps: list[float] = field(default_factory=list)


class EngineFault(RuntimeError):
    """The engine did something that makes its figures meaningless."""


class Stepper:
    """An in-process vllm.LLM; `adapters` are LoRARequests, by the numbers that requests have."""

    def __init__(self, llm: Any, adapters: Sequence[Any]) -> None:
        self._llm = llm
        self._adapters = adapters
        self._streams: dict[str, Stream] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._streams)

    def begin(self, request: Request, *, turn: int, prompt: list[int], output: int, arrived: bool) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        name = str(self._count)
        self._count += 1
        self._streams[name] = Stream(request, turn, prompt, output, arrived, time.perf_counter())
        self._llm.llm_engine.add_request(
            name,
            {"prompt_token_ids": prompt},
            SamplingParams(
                temperature=0,
                max_tokens=output,
                ignore_eos=True,
                detokenize=False,
                output_kind=RequestOutputKind.DELTA,
            ),
            lora_request=self._adapters[request.adapter] if request.adapter >= 0 else None,
        )

    def step(self) -> list[Stream]:
        """The streams that this step has ended. Raises EngineFault if one ended early."""
        ended = []
        for output in self._llm.llm_engine.step():
            stream = self._streams[output.request_id]
            tokens = output.outputs[0].token_ids
            stream.answer += tokens
            stream.stamps += [time.perf_counter()] * len(tokens)
            if output.finished:
                del self._streams[output.request_id]
                if len(stream.answer) != stream.output:
                    raise EngineFault(
                        f"A request ended after {len(stream.answer)} of {stream.output} tokens: "
                        f"{output.outputs[0].finish_reason}"
                    )
                ended.append(stream)
        return ended

    def in_memory(self, adapter: int) -> bool:
        """Ask for the adapter as the server does ahead of a request: if it is not there, it is read meanwhile."""
        asked = self._adapters[adapter]
        answers = self._llm.collective_rpc("attune_prefetch", args=(asked.lora_name, asked.lora_path))
        for answer in answers:
            if answer["state"] == "failed":
                raise EngineFault(f"{asked.lora_name}: {answer['message']}")
        return all(answer["state"] == "ready" for answer in answers)


@dataclass
class Drive:
    """What came of it: the streams in the order of their requests, and how many adapters were not in memory."""

    streams: list[Stream]
    seconds: float
    read: int


def drive(
    stepper: Stepper, requests: Sequence[Request], *, batch: int, arrivals: Sequence[Request] = ()
) -> Drive:
    """First come, first served: `batch` of the requests at once, the next one when one has ended.

    A chat's next turn begins when its last answer is there. `arrivals` come one every STEPS_BETWEEN steps beside them,
    each admitted when its adapter has been read, as the server does it.
    """
    waiting, coming = deque(requests), deque(arrivals)
    reading: list[Request] = []
    ended: list[Stream] = []
    steps = read = 0
    began = time.perf_counter()
    while waiting or coming or reading or len(stepper):
        while waiting and len(stepper) < batch:
            request = waiting.popleft()
            stepper.begin(request, turn=0, prompt=request.prompt, output=request.output, arrived=False)
        if coming and steps % STEPS_BETWEEN == 0:
            request = coming.popleft()
            if stepper.in_memory(request.adapter):
                stepper.begin(request, turn=0, prompt=request.prompt, output=request.output, arrived=True)
            else:
                read += 1
                reading.append(request)
        for request in [request for request in reading if stepper.in_memory(request.adapter)]:
            reading.remove(request)
            stepper.begin(request, turn=0, prompt=request.prompt, output=request.output, arrived=True)
        for stream in stepper.step():
            ended.append(stream)
            _next_turn(stepper, stream)
        steps += 1
    order = {id(request): number for number, request in enumerate([*requests, *arrivals])}
    ended.sort(key=lambda stream: (order[id(stream.request)], stream.turn))
    return Drive(ended, time.perf_counter() - began, read)


def _next_turn(stepper: Stepper, stream: Stream) -> None:
    if stream.turn < len(stream.request.later):
        message, output = stream.request.later[stream.turn]
        prompt = [*stream.prompt, *stream.answer, *message]
        stepper.begin(stream.request, turn=stream.turn + 1, prompt=prompt, output=output, arrived=False)
