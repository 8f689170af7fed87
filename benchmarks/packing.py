"""python -m benchmarks.packing: what padding costs a training step, and what it costs to pack rows into one instead.

Prints the share of padding in batches of conversations (FILE..., one a line, as attune-train takes them), and the
processor's seconds of a step of one thread, padded and packed, for batches of their rows and of random tokens. Both
take turns, round after round; a ratio pairs steps of one round.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.machine import ROOT, described, machine
from training_jobs.attach.adapter import adapter_attach
from training_jobs.base_models import base_digest_of, base_load
from training_jobs.batches import BatchOrder, collate, packed, packing_pays
from training_jobs.conversation_file import conversations
from training_jobs.data import examples_read
from training_jobs.examples import Example
from training_jobs.messages import Base, Recipe
from training_jobs.score import target_logits

_FILES = [ROOT / f"local_stack/demo_data/{name}.jsonl" for name in ("maren", "juno")]
#: Tokens of each row of a batch of random ones; a tenth of them, at least 10, is the target.
_RANDOM = ((64, 64, 64, 64), (200, 200, 200, 200), (190, 230, 270, 310), (40, 80, 160, 400))


def padding(lengths: Sequence[int], batch_size: int) -> float:
    """Of ten epochs in the order of a training, 0 to 1."""
    order = BatchOrder(len(lengths), batch_size=batch_size, epochs=10, seed=0)
    batches = [[lengths[number] for number in order[index]] for index in range(len(order))]
    return 1 - sum(map(sum, batches)) / sum(len(batch) * max(batch) for batch in batches)


def random_rows(lengths: Sequence[int]) -> list[Example]:
    rng = np.random.default_rng(0)
    return [Example(rng.integers(100, 40_000, n).astype(np.int32), n - max(10, n // 10)) for n in lengths]


def step(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> float:
    """The processor's seconds of a forward and a backward pass."""
    began = time.process_time()
    logits, targets = target_logits(model, batch)
    F.cross_entropy(logits, targets).backward()
    return time.process_time() - began


def measured(model: torch.nn.Module, rows: Sequence[Example], *, rounds: int, pad: int) -> str:
    """A line of the table."""
    padded = collate(rows, pad=pad)
    both = [padded, packed(padded)]
    steps = [step(model, batch) for batch in both * (rounds + 1)][2:]
    ratios = [one / other for other, one in list(pairwise(steps))[::2]]
    lengths = sorted(len(row.tokens) for row in rows)
    share = 1 - sum(lengths) / (len(lengths) * lengths[-1])
    return (
        f"| {', '.join(map(str, lengths))} | {share:.0%} | {statistics.median(steps[::2]):.2f} "
        f"| {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) "
        f"| {'packed' if packing_pays(padded) else 'padded'} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packing", description=__doc__)
    parser.add_argument("files", type=Path, nargs="*", default=_FILES)
    parser.add_argument("--base", type=Path, default=ROOT / ".attune/models/smollm2-135m-instruct")
    parser.add_argument("--method", choices=["direft", "lora", "loreft"], default="direft")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    base = base_load(arguments.base, Base(name=arguments.base.name, digest=base_digest_of(arguments.base)))
    batches = []
    print("| file | rows | tokens a row, median (most) | padding in batches of 4, 8, 16 |\n|---|---|---|---|")
    for path in arguments.files:
        talks = conversations(path, held_out=0, seed=0)
        found = examples_read(
            [talk.model_dump_json() for talk in talks], base.encoder, max_tokens=base.max_tokens
        )
        rows = list(found.train)
        lengths = [len(row.tokens) for row in rows]
        shares = ", ".join(f"{padding(lengths, size):.0%}" for size in (4, 8, 16))
        print(f"| {path.stem} | {len(rows)} | {statistics.median(lengths):.0f} ({max(lengths)}) | {shares} |")
        batches.append([rows[number] for number in BatchOrder(len(rows), batch_size=4, epochs=1, seed=0)[0]])
    model = adapter_attach(base.model, Recipe(method=arguments.method, position="prefill", rank=8), seed=0)
    model.train()
    print(f"\n{described(machine())}; {arguments.base.name}, {arguments.method}, float32, one thread\n")
    print("| tokens of each row | padding | s a step, padded | packed, times that (spread) | chosen |")
    print("|---|---|---|---|---|")
    for rows in [*batches, *map(random_rows, _RANDOM)]:
        print(measured(model, rows, rounds=arguments.rounds, pad=0), flush=True)


if __name__ == "__main__":
    main()
