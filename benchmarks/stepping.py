"""vLLM's engine one step at a time, so that every token has the time at which it came (the paper's appendix E.3)."""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.clock import Clock
from benchmarks.workload import Request

#: Requests that arrive while others stream do so one every so many steps.
STEPS_BETWEEN = 3


@dataclass
class Stream:
    """One answer as it comes: seconds are those of the stepper's clock."""

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
    """An in-process vllm.LLM; `adapters` are LoRARequests, by the numbers that requests have.

    A Run starts and stops its clock.
    """

    def __init__(self, llm: Any, adapters: Sequence[Any]) -> None:
        self._llm = llm
        self._adapters = adapters
        self._streams: dict[str, Stream] = {}
        self._count = 0
        self.clock = Clock()

    def __len__(self) -> int:
        return len(self._streams)

    def begin(self, request: Request, *, turn: int, prompt: list[int], output: int, arrived: bool) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        name = str(self._count)
        self._count += 1
        self._streams[name] = Stream(request, turn, prompt, output, arrived, self.clock.now())
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
            stream.stamps += [self.clock.now()] * len(tokens)
            if output.finished:
                del self._streams[output.request_id]
                if len(stream.answer) != stream.output:
                    raise EngineFault(
                        f"A request ended after {len(stream.answer)} of {stream.output} tokens: "
                        f"{output.outputs[0].finish_reason}"
                    )
                ended.append(stream)
        return ended

    def settle(self) -> None:
        """Wait for what is still under way. On CUDA vLLM starts a step before it answers the one before."""
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()

    def in_memory(self, adapter: int) -> bool:
        """Ask for the adapter as the server does ahead of a request: if it is not there, it is read meanwhile."""
        asked = self._adapters[adapter]
        answers = self._llm.collective_rpc("attune_prefetch", args=(asked.lora_name, asked.lora_path))
        for answer in answers:
            if answer["state"] == "failed":
                raise EngineFault(f"{asked.lora_name}: {answer['message']}")
        return all(answer["state"] == "ready" for answer in answers)


class Run:
    """Requests on an engine, first come, first served: `batch` of them at once, the next one when one has ended.

    A chat's next turn begins when its last answer is there. `arrivals` come one every STEPS_BETWEEN steps beside them,
    each admitted when its adapter has been read, as the server does it. It works only within advance(), and its clock
    stands still between. Reading goes on between, so runs with arrivals are not to be paused.

    Once it has ended: streams in the order of their requests, seconds in which it worked, and read, how many adapters
    were not in memory.
    """

    def __init__(
        self, stepper: Stepper, requests: Sequence[Request], *, batch: int, arrivals: Sequence[Request] = ()
    ) -> None:
        self._stepper = stepper
        self._requests = requests
        self._arrivals = arrivals
        self._batch = batch
        self._steps = self._work()
        self.streams: list[Stream] = []
        self.seconds = 0.0
        self.read = 0

    def advance(self, seconds: float = math.inf) -> bool:
        """Work until `seconds` have passed, a whole number of steps; whether it has ended."""
        clock = self._stepper.clock
        with clock.running():
            began = clock.now()
            ended = True
            for _ in self._steps:
                if clock.now() - began >= seconds:
                    # Its time is this run's, not the next one's.
                    self._stepper.settle()
                    ended = False
                    break
            self.seconds += clock.now() - began
        if ended:
            order = {id(request): number for number, request in enumerate([*self._requests, *self._arrivals])}
            self.streams.sort(key=lambda stream: (order[id(stream.request)], stream.turn))
        return ended

    def _work(self) -> Iterator[None]:
        """Yields after every step of the engine."""
        waiting, coming = deque(self._requests), deque(self._arrivals)
        reading: list[Request] = []
        steps = 0
        while waiting or coming or reading or len(self._stepper):
            while waiting and len(self._stepper) < self._batch:
                self._begin(waiting.popleft())
            if coming and steps % STEPS_BETWEEN == 0:
                request = coming.popleft()
                if self._stepper.in_memory(request.adapter):
                    self._begin(request, arrived=True)
                else:
                    self.read += 1
                    reading.append(request)
            for request in [request for request in reading if self._stepper.in_memory(request.adapter)]:
                reading.remove(request)
                self._begin(request, arrived=True)
            for stream in self._stepper.step():
                self.streams.append(stream)
                self._next_turn(stream)
            steps += 1
            yield

    def _begin(self, request: Request, *, arrived: bool = False) -> None:
        self._stepper.begin(request, turn=0, prompt=request.prompt, output=request.output, arrived=arrived)

    def _next_turn(self, stream: Stream) -> None:
        if stream.turn < len(stream.request.later):
            message, output = stream.request.later[stream.turn]
            prompt = [*stream.prompt, *stream.answer, *message]
            self._stepper.begin(
                stream.request, turn=stream.turn + 1, prompt=prompt, output=output, arrived=False
            )
