"""python -m benchmarks.many_users: adapters of several users trained in one batch, against one after another.

16 users with short chats of random tokens, on a small model and on SmolLM2. The trainers are the service's own. Both
ways take turns, round after round, on one base model; a ratio pairs the runs of one round. Prints a table for
docs/benchmarks.md and writes JSON; says how many tokens were computed, how many of them were padding, and how much of
a step is matrix products, which is what bounds it on a CPU.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from adapters_store.names import Method
from benchmarks.machine import ROOT, described, machine
from benchmarks.measures import spread
from training_jobs.attach.adapter import adapter_attach, adapter_detach, adapters_attach
from training_jobs.examples import Examples
from training_jobs.messages import DEFAULTS, Hyperparameters, Recipe
from training_jobs.sft import SupervisedRun
from training_jobs.sft_together import TrainingsTogether
from training_jobs.training import Pace, Trained, Training

_NEVER = Pace(steps=1 << 60, seconds=0)
#: Rows of a user, and of a batch: what the service takes for so few.
ROWS, BATCH = 40, 4
#: Operators that are matrix products.
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "flash_attention", "attention_math")


class Unwatched:
    """Nobody follows, nobody stops it."""

    def step(self, step: int, total: int, loss: float) -> None: ...

    def held_out(self, step: int, loss: float, accuracy: float | None) -> None: ...

    def kept(self, best_step: int, *, step: int, total: int) -> None: ...

    def halved(self, step: int | None) -> None: ...

    def parted(self, parts: int, *, needed: int, free: int) -> None: ...

    def checkpoint(self, step: int, path: Path) -> None: ...

    def should_stop(self) -> bool:
        return False


@dataclass
class Passes:
    """What the forward passes of a model computed: tokens, and those that are not padding."""

    tokens: int = 0
    real: int = 0
    rows: list[int] = field(default_factory=list)

    def note(self, model: Any, args: Any, kwargs: dict[str, Any]) -> None:
        tokens, seen = kwargs["input_ids"], kwargs["attention_mask"]
        packed = seen is None  # and each row begins at 0
        self.tokens += tokens.numel()
        self.real += tokens.numel() if packed else int(seen.sum())
        self.rows.append(int((kwargs["position_ids"] == 0).sum()) if packed else len(tokens))


@dataclass(frozen=True)
class Setting:
    """A base model, and how its users train: `steps` optimiser steps each, of ROWS rows or as many as the steps see."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    recipe: Recipe
    users: int
    steps: int

    @property
    def hyperparameters(self) -> Hyperparameters:
        rows = min(ROWS, self.steps * BATCH)
        rate = DEFAULTS[self.recipe.method].learning_rate("supervised")
        return Hyperparameters(
            n_epochs=self.steps * BATCH // rows, batch_size=BATCH, learning_rate=rate, seed=0
        )

    def examples(self, user: int) -> Examples:
        """As long as short chats are: prompts of 28 to 64 tokens, template included, answers of 8 to 32."""
        rng, made = np.random.default_rng(user), Examples()
        for row in range(min(ROWS, self.steps * BATCH)):
            prompt, answer = int(rng.integers(28, 65)), int(rng.integers(8, 33))
            tokens = rng.integers(3, self.model.config.vocab_size, prompt + answer).tolist()
            made.train.add(tokens[:prompt], tokens[prompt:], conversation=row)
        return made

    def training(self, kind: type[Training], model: Any, user: int, folder: Path, **more: Any) -> Any:
        return kind(
            model=model,
            examples=self.examples(user),
            hyperparameters=self.hyperparameters,
            tokenizer=self.tokenizer,
            watcher=Unwatched(),
            folder=folder,
            pace=_NEVER,
            **more,
        )


def one_after_another(setting: Setting, folder: Path) -> dict[str, Any]:
    """{"seconds", "processor_seconds", "tokens", "real", "rows_a_pass"} of all users' steps.

    On a machine that others use, the processor's seconds say what is computed and the seconds also how long it waited.
    """
    seconds, passes, began = 0.0, Passes(), time.process_time()
    for user in range(setting.users):
        model = adapter_attach(setting.model, setting.recipe, seed=user)
        hook = model.register_forward_pre_hook(passes.note, with_kwargs=True)
        seconds += setting.training(SupervisedRun, model, user, folder).train().seconds
        hook.remove()
        adapter_detach(model)
    return _measured(seconds, time.process_time() - began, passes)


def together(setting: Setting, folder: Path) -> dict[str, Any]:
    seeds = {f"user{user}": user for user in range(setting.users)}
    passes, began = Passes(), time.process_time()
    model = adapters_attach(setting.model, setting.recipe, seeds=seeds)
    hook = model.register_forward_pre_hook(passes.note, with_kwargs=True)
    trainings = [
        setting.training(Training, model, user, folder, adapter=adapter) for adapter, user in seeds.items()
    ]
    ends = TrainingsTogether(model, trainings).train()
    hook.remove()
    adapter_detach(model)
    failed = [end for end in ends if not isinstance(end, Trained)]
    if failed:
        raise failed[0]
    seconds = max(end.seconds for end in ends if isinstance(end, Trained))
    return _measured(seconds, time.process_time() - began, passes)


def _measured(seconds: float, processor_seconds: float, passes: Passes) -> dict[str, Any]:
    return {
        "seconds": seconds,
        "processor_seconds": processor_seconds,
        "tokens": passes.tokens,
        "real": passes.real,
        "rows_a_pass": statistics.mean(passes.rows),
    }


WAYS = {"alone": one_after_another, "together": together}


def rounds_of(setting: Setting, count: int) -> list[dict[str, dict[str, Any]]]:
    """Each round has both ways; every other round the other one is first."""
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            order = list(WAYS) if number % 2 == 0 else list(WAYS)[::-1]
            rounds.append({way: WAYS[way](setting, Path(folder)) for way in order})
            print(f"round {number + 1} of {count}: {rounds[-1]}", flush=True)
    return rounds


def share_of_products(setting: Setting) -> float:
    """Of the processor's time in one step of everybody, together: what matrix products take."""
    one = Setting(setting.model, setting.tokenizer, setting.recipe, setting.users, steps=1)
    with tempfile.TemporaryDirectory() as folder, profile(activities=[ProfilerActivity.CPU]) as profiled:
        together(one, Path(folder))
    events = profiled.key_averages()
    everything = sum(event.self_cpu_time_total for event in events)
    products = sum(
        event.self_cpu_time_total for event in events if any(name in event.key for name in _PRODUCTS)
    )
    return products / everything


def summary(rounds: Sequence[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """Ratios are how many times less together takes; tokens are those of a processor's second, and include padding."""
    line: dict[str, Any] = {
        f"ratio_of_{what}": spread([each["alone"][what] / each["together"][what] for each in rounds])
        for what in ("seconds", "processor_seconds")
    }
    for way in WAYS:
        runs = [each[way] for each in rounds]
        line[way] = {
            "processor_seconds": statistics.median(run["processor_seconds"] for run in runs),
            "padding": 1 - runs[0]["real"] / runs[0]["tokens"],
            "tokens_a_second": statistics.median(run["tokens"] / run["processor_seconds"] for run in runs),
            "rows_a_pass": runs[0]["rows_a_pass"],
        }
    return line


def table(cases: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| model | method | processor's s a step of all, one after another → together | times less (spread) "
        "| times faster (spread) | padding | tokens, padding included, a processor's s | of a step in products |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in cases:
        alone, with_others = case["alone"], case["together"]
        seconds = [way["processor_seconds"] / case["steps"] for way in (alone, with_others)]
        less, faster = (
            f"{ratio['median']:.2f} ({ratio['least']:.2f} to {ratio['greatest']:.2f})"
            for ratio in (case["ratio_of_processor_seconds"], case["ratio_of_seconds"])
        )
        lines.append(
            f"| {case['model']} | {case['method']} | {seconds[0]:.2f} → {seconds[1]:.2f} "
            f"| {less} | {faster} "
            f"| {alone['padding']:.0%} → {with_others['padding']:.0%} "
            f"| {alone['tokens_a_second']:.0f} → {with_others['tokens_a_second']:.0f} | {case['products']:.0%} |"
        )
    return "\n".join(lines)


def small_model() -> LlamaForCausalLM:
    """So small that what is not a product weighs, as on a GPU."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=2048,
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
    )
    return LlamaForCausalLM(config).requires_grad_(False).eval()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_users", description=__doc__)
    parser.add_argument("--base", type=Path, default=ROOT / ".attune/models/smollm2-135m-instruct")
    parser.add_argument("--users", type=int, default=16)
    parser.add_argument(
        "--methods", nargs="+", choices=get_args(Method), default=["lora", "direft", "loreft"]
    )
    parser.add_argument("--small-steps", type=int, default=40, help="of each user, on the small model")
    parser.add_argument("--steps", type=int, default=2, help="of each user, on --base; 0 leaves it out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/many-users.json")
    arguments = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(arguments.base)
    models = [("small (8 layers, width 64)", small_model(), arguments.small_steps)]
    if arguments.steps:
        base = AutoModelForCausalLM.from_pretrained(arguments.base, dtype=torch.float32)
        models.append((arguments.base.name, base.requires_grad_(False).eval(), arguments.steps))
    cases = []
    for name, model, steps in models:
        for method in arguments.methods:
            recipe = Recipe(method=method, position="prefill", rank=8)
            setting = Setting(model, tokenizer, recipe, arguments.users, steps)
            rounds = rounds_of(setting, arguments.rounds)
            case = {"model": name, "method": f"{method}, rank 8", "steps": steps, "rounds": rounds}
            cases.append({**case, **summary(rounds), "products": share_of_products(setting)})
            here = machine()
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            arguments.out.write_text(
                json.dumps({"machine": here, "users": arguments.users, "cases": cases}, indent=2)
            )
    print(
        f"\n{described(here)}; torch {here['torch']}, float32; {arguments.users} users, batches of {BATCH} rows "
        f"each, {arguments.rounds} rounds.\n"
    )
    print(table(cases))


if __name__ == "__main__":
    main()
