"""Measure a figure: its engines up together, its cases in turn, round after round, on the same requests."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adapters_store.names import Method, Position
from benchmarks.figures import Case, Figure
from benchmarks.kinds import KINDS, Capacity, capacity_of, options_of
from benchmarks.measures import measures
from benchmarks.random_adapters import random_adapter
from benchmarks.workers import EngineEnded, Worker, launch
from benchmarks.workload import Request, requests_of
from inference.adapter_checks import ServedBase, served_base
from inference.serve import engine_options

#: inference.serve's default.
_MOST_SEQUENCES = 32


@dataclass(frozen=True)
class Model:
    """The base model's folder, the adapters' ranks, options of vLLM that the folder needs, and random_adapter's."""

    folder: Path
    lora_rank: int
    reft_rank: int
    options: dict[str, Any] = field(default_factory=dict)
    lora_up: float = 0.02


def measure(figure: Figure, model: Model, *, work: Path, logs: Path) -> dict[str, Any]:
    """{"cases": name to one entry a round (None: it did not run), "failed": engine to reason}.

    An engine that ends costs the cases that it serves; the others are measured. Interrupted (SIGINT), what was
    measured until then is returned.
    """
    rank = max(model.lora_rank, model.reft_rank)
    capacity = capacity_of(
        adapters=figure.adapters,
        batch=figure.batch,
        gpu_slots=figure.gpu_slots,
        cpu_slots=figure.cpu_slots,
        rank=rank,
    )
    say(f"making {figure.adapters} random adapters a kind")
    folders = _folders(figure, model, work)
    options = _options(figure, model, capacity)
    failed: dict[str, str] = {}
    workers: dict[str, Worker] = {}
    results: dict[str, list[dict[str, Any] | None]] = {case.name: [] for case in figure.cases}
    try:
        say(f"starting {len(figure.engines)} engines: {', '.join(figure.engines)}; this takes minutes")
        for engine in figure.engines:
            workers[engine] = launch(
                engine,
                options=options[engine],
                folders={kind: made for kind, made in folders.items() if KINDS[kind].engine == engine},
                batch=figure.batch,
                logs=logs,
            )
        for engine in figure.engines:
            with _losses(failed, workers, engine):
                workers[engine].wait_ready()
                say(f"{engine} is up and warm")
        for number in range(figure.rounds):
            for runs in results.values():
                runs.append(None)
            for case in _order(figure.cases, number):
                engine = KINDS[case.kind].engine
                if engine in workers:
                    with _losses(failed, workers, engine):
                        result = results[case.name][-1] = _run(workers[engine], case, figure, number)
                        say(
                            f"round {number + 1}: {case.name}: {result['throughput']:.0f} tokens/s, "
                            f"{result['seconds']:.0f} s"
                        )
    except KeyboardInterrupt:
        failed["benchmark"] = "interrupted"
    finally:
        for worker in workers.values():
            worker.stop()
    return {"cases": results, "failed": failed}


@contextmanager
def _losses(failed: dict[str, str], workers: dict[str, Worker], engine: str) -> Iterator[None]:
    """Within it an engine may end: it is then taken out of the workers, and the reason kept."""
    try:
        yield
    except EngineEnded as error:
        say(f"FAILED: {error}")
        failed[engine] = str(error)
        workers.pop(engine).stop()


def _order(cases: Sequence[Case], number: int) -> Sequence[Case]:
    """Every other round backwards, so that nobody always follows the same one. What is cold has to come before what
    is then warm."""
    return cases if number % 2 == 0 or any(case.arrivals for case in cases) else cases[::-1]


def requests_for(case: Case, figure: Figure, number: int) -> tuple[list[Request], list[Request]]:
    """A round's requests, and those that arrive beside them.

    With arrivals, the requests are streams of the base, all of them as long as may be, and one half of the adapters
    arrives in even rounds, the other in odd ones: where half fits into memory, they are not there.
    """
    requests = requests_of(
        profile=case.profile,
        mix=case.mix,
        count=figure.requests,
        adapters=case.adapters,
        max_tokens=figure.max_tokens,
        seed=number,
    )
    if not case.arrivals:
        return requests, []
    streams = [
        Request(request.prompt[:32], figure.max_tokens - len(request.prompt[:32]), -1) for request in requests
    ]
    if case.arrivals == "none":
        return streams, []
    half = case.adapters // 2
    prompts = requests_of(
        profile=case.profile, mix="identical", count=half, adapters=1, max_tokens=64, seed=1_000 + number
    )
    first = number % 2 * half
    return streams, [Request(request.prompt, 1, first + index) for index, request in enumerate(prompts)]


def _run(worker: Worker, case: Case, figure: Figure, number: int) -> dict[str, Any]:
    requests, arrivals = requests_for(case, figure, number)
    run = worker.run(case.kind, requests, arrivals)
    expected = len(arrivals) if case.arrivals == "cold" else 0
    if run["read"] != expected:
        raise EngineEnded(
            f"{case.name}: {run['read']} adapters were read from disk where {expected} should have been."
        )
    return measures(run)


def _folders(figure: Figure, model: Model, work: Path) -> dict[str, list[tuple[str, str]]]:
    """Each kind's adapters: serving names and paths. Kinds of one method and position share them."""
    base = served_base(model.folder, max_rank=max(model.lora_rank, model.reft_rank))
    made: dict[tuple[Method, Position], list[tuple[str, str]]] = {}
    folders = {}
    for name in dict.fromkeys(case.kind for case in figure.cases):
        kind = KINDS[name]
        if kind.method is None:
            continue
        key = (kind.method, kind.position)
        if key not in made:
            made[key] = [_adapter(work, base, *key, model, seed) for seed in range(figure.adapters)]
        folders[name] = made[key]
    return folders


def _adapter(
    work: Path, base: ServedBase, method: Method, position: Position, model: Model, seed: int
) -> tuple[str, str]:
    folder = work / f"{method}-{position}-{seed}"
    manifest = random_adapter(
        folder,
        base=base,
        method=method,
        position=position,
        rank=model.lora_rank if method == "lora" else model.reft_rank,
        seed=seed,
        lora_up=model.lora_up,
    )
    return manifest.name, str(folder)


def _options(figure: Figure, model: Model, capacity: Capacity) -> dict[str, dict[str, Any]]:
    ours = engine_options(
        base_folder=model.folder,
        gpu_slots=capacity.gpu_slots,
        cpu_slots=capacity.cpu_slots,
        max_rank=capacity.max_rank,
        max_model_len=2048,
        max_num_seqs=max(figure.batch, _MOST_SEQUENCES),
    )
    from inference import plugin

    on_cpu = plugin.on_cpu()
    return {
        engine: {**options_of(engine, ours, capacity, on_cpu=on_cpu), **model.options}
        for engine in figure.engines
    }


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)
