"""python -m benchmarks.training: what adapting only the prompt costs a training step, against adapting every token.

LoRA_P against PEFT's own LoRA and DiReFT_P against DiReFT, on the same batches: forward, backward, optimizer. The four
take turns, round after round, on one base model; a ratio pairs steps of one round. Prints a table for
docs/benchmarks.md, and the process's peak memory.
"""

import argparse
import resource
import statistics
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from adapters_store.names import Method, Position
from benchmarks.machine import ROOT, machine
from training_jobs.attach.adapter import adapter_attach, adapter_detach
from training_jobs.attach.prompt_mask import IGNORED
from training_jobs.messages import Recipe


class Kind(NamedTuple):
    label: str
    method: Method
    position: Position


#: Each pair: prompt only, and the same on every token.
PAIRS = (
    (Kind("LoRA_P", "lora", "prefill"), Kind("LoRA (PEFT's own)", "lora", "all")),
    (Kind("DiReFT_P", "direft", "prefill"), Kind("DiReFT", "direft", "all")),
)


def batches(arguments: argparse.Namespace, *, vocabulary: int) -> list[dict[str, torch.Tensor]]:
    """Random tokens, [batch, tokens] int64; the first half of each row is prompt."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(arguments.steps):
        tokens = torch.from_numpy(rng.integers(100, vocabulary, (arguments.batch, arguments.tokens)))
        labels = tokens.clone()
        labels[:, : arguments.tokens // 2] = IGNORED
        made.append({"input_ids": tokens, "labels": labels})
    return made


def seconds_a_step(model: PreTrainedModel, kind: Kind, data: list[dict[str, torch.Tensor]]) -> float:
    """Median over the batches; one more before them warms up. The base model is left as it was."""
    attached = adapter_attach(model, Recipe(method=kind.method, position=kind.position, rank=8), seed=0)
    attached.train()
    optimizer = torch.optim.AdamW(parameter for parameter in attached.parameters() if parameter.requires_grad)
    times = []
    for batch in [data[0], *data]:
        began = time.perf_counter()
        attached(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - began)
    adapter_detach(attached)
    return statistics.median(times[1:])


def table(rounds: list[dict[str, float]]) -> str:
    lines = ["| prompt only | every token | s a step | ratio (median) | spread |", "|---|---|---|---|---|"]
    for prompt_only, every in PAIRS:
        ratios = [seconds[prompt_only.label] / seconds[every.label] for seconds in rounds]
        step = statistics.median(seconds[prompt_only.label] for seconds in rounds)
        lines.append(
            f"| {prompt_only.label} | {every.label} | {step:.2f} | {statistics.median(ratios):.3f} "
            f"| {min(ratios):.3f} to {max(ratios):.3f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__)
    parser.add_argument("--base", type=Path, default=ROOT / ".attune/models/smollm2-135m-instruct")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(arguments.base, dtype=torch.float32)
    model.requires_grad_(False)
    data = batches(arguments, vocabulary=model.config.vocab_size)
    kinds = [kind for pair in PAIRS for kind in pair]
    rounds = []
    for number in range(arguments.rounds):
        # Every other round backwards, so that nobody always follows the same one.
        order = kinds if number % 2 == 0 else kinds[::-1]
        rounds.append({kind.label: seconds_a_step(model, kind, data) for kind in order})
        print(f"round {number + 1} of {arguments.rounds}", flush=True)
    here = machine()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"\n{here['cpu']}, {here['cores']} cores; torch {here['torch']}, float32; {arguments.base.name}; batch "
        f"{arguments.batch} × {arguments.tokens} tokens, half of them prompt; peak memory {peak:.1f} GB.\n"
    )
    print(table(rounds))


if __name__ == "__main__":
    main()
