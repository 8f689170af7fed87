"""attune-train data.jsonl --base FOLDER: conversations in, an adapter's folder out; no service, no account.

Several files are several users: an adapter each, trained in one batch, in a folder each within --out.

One conversation a line, as OpenAI's chat fine-tuning has them ({"messages": [{"role", "content", "weight"?}, …]}) or
as docs/datasets.md normalises them; or one preference pair a line, as OpenAI's DPO has them ({"input": {"messages"},
"preferred_output", "non_preferred_output"}). `inference` serves the folder (docs/inference.md).
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError
from tqdm import tqdm

import training_jobs.offline  # noqa: F401 (before anything imports transformers)
from adapters_store.chat_template import TemplateUnfit
from adapters_store.manifest import MANIFEST_FILE, manifest_load
from adapters_store.preft.config import TARGET_MODULES
from training_jobs.adapter_train import ADAPTER, Outcome, adapter_train
from training_jobs.adapters_train import Wish, adapters_train
from training_jobs.base_models import LoadedBase, base_digest_of, base_load
from training_jobs.conversation_file import conversations, reason_of, type_of
from training_jobs.data import examples_read
from training_jobs.errors import JobFault, UserFault
from training_jobs.examples import Examples
from training_jobs.free_memory import gigabytes
from training_jobs.messages import (
    DEFAULT_BETA,
    DEFAULTS,
    FEWEST_CONVERSATIONS,
    FEWEST_PAIRS,
    FEWEST_TOKENS,
    HELD_OUT_FEWEST,
    HELD_OUT_MOST_SHARE,
    HELD_OUT_SHARE,
    Base,
    Comparison,
    Hyperparameters,
    JobType,
    PreferenceComparison,
    Recipe,
    auto_epochs,
)
from training_jobs.preview import preview
from training_jobs.training import Pace

#: Nobody resumes a command: no checkpoint is written.
_NEVER = Pace(steps=sys.maxsize, seconds=0)


class Progress:
    """A Watcher that draws a bar; `label` says whose it is, if there are several."""

    def __init__(self, label: str = "") -> None:
        self._bar: tqdm[None] | None = None
        self._label = label
        self._prefix = f"{label}: " if label else ""

    def _say(self, line: str) -> None:
        tqdm.write(self._prefix + line, file=sys.stderr)

    def step(self, step: int, total: int, loss: float) -> None:
        if self._bar is None:
            self._bar = tqdm(total=total, unit="step", desc=self._label or None)
        self._bar.set_postfix(loss=f"{loss:.3f}")
        self._bar.update(step - self._bar.n)
        if step == total:
            self._bar.close()

    def held_out(self, step: int, loss: float, accuracy: float | None) -> None:
        prefers = (
            "" if accuracy is None else f", the better answer is the likelier one in {accuracy:.0%} of pairs"
        )
        self._say(f"held-out loss after step {step}: {loss:.3f}{prefers}")

    def kept(self, best_step: int, *, step: int, total: int) -> None:
        if self._bar is not None:
            self._bar.close()
        early = f"stopped after step {step} of {total}: " if step < total else ""
        self._say(f"{early}the adapter is the one of step {best_step}, the best")

    def halved(self, step: int | None) -> None:
        self._say(f"out of memory after step {step}: half a batch at a time from here on")

    def parted(self, parts: int, *, needed: int, free: int) -> None:
        self._say(
            f"a batch would need about {gigabytes(needed)} and {gigabytes(free)} are free: computed in {parts} parts"
        )

    def checkpoint(self, step: int, path: Path) -> None:
        path.unlink()

    def should_stop(self) -> bool:
        return False


def train(arguments: argparse.Namespace) -> None:
    """Raises JobFault."""
    folder: Path = arguments.base
    base = base_load(folder, Base(name=folder.name, digest=base_digest_of(folder)))
    if arguments.preview:
        for path in arguments.data:
            examples, _, _ = _read(base, path, arguments)
            print(*preview(examples, base.tokenizer), sep="\n")
        return
    out: Path = arguments.out
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".attune-train-", dir=out.parent) as scratch:
        if len(arguments.data) == 1:
            _train_one(base, arguments, Path(scratch))
        else:
            _train_together(base, arguments, Path(scratch))
    print(
        "Skipped, because there is no engine here: whether an adapter changes what an engine says, and whether an "
        "engine says what was computed here. docs/inference.md says how to serve it."
    )


def _train_one(base: LoadedBase, arguments: argparse.Namespace, scratch: Path) -> None:
    examples, recipe, hyperparameters = _read(base, arguments.data[0], arguments)
    outcome = adapter_train(
        base,
        examples,
        scratch,
        recipe=recipe,
        hyperparameters=hyperparameters,
        watcher=Progress(),
        pace=_NEVER,
    )
    _keep(outcome, scratch, arguments.out)


def _train_together(base: LoadedBase, arguments: argparse.Namespace, scratch: Path) -> None:
    """Who cannot be trained is named; the others are. Raises SystemExit then."""
    wishes = []
    for path in arguments.data:
        print(f"{path}:", flush=True)
        examples, recipe, hyperparameters = _read(base, path, arguments)
        own = scratch / path.stem
        own.mkdir()
        wishes.append(Wish(examples, own, hyperparameters, Progress(path.stem)))
    ends = dict(zip(arguments.data, adapters_train(base, wishes, recipe=recipe, pace=_NEVER), strict=True))
    arguments.out.mkdir()
    for path, end in ends.items():
        print(f"\n{path}:")
        if isinstance(end, Outcome):
            _keep(end, scratch / path.stem, arguments.out / path.stem)
        elif isinstance(end, JobFault):
            print(f"{end.message} ({end.code})")
    failed = sum(not isinstance(end, Outcome) for end in ends.values())
    for end in ends.values():
        if isinstance(end, Exception) and not isinstance(end, JobFault):
            raise end
    if failed:
        sys.exit(f"{failed} of {len(ends)} files gave no adapter; the others are in {arguments.out}.")


def _read(
    base: LoadedBase, path: Path, arguments: argparse.Namespace
) -> tuple[Examples, Recipe, Hyperparameters]:
    """What a file gives to train on, and how; both are said."""
    talks = conversations(path, held_out=arguments.held_out, seed=arguments.seed)
    rows = (talk.model_dump_json() for talk in talks)
    kind = type_of(talks)
    examples = examples_read(rows, base.encoder, type=kind, max_tokens=base.max_tokens)
    for complaint in examples.complaints(max_tokens=base.max_tokens):
        print(complaint, file=sys.stderr)
    trained, held_out = examples.count
    recipe, hyperparameters = decide(arguments, type=kind, examples=trained)
    print(
        f"{recipe.method}, {recipe.position}, rank {recipe.rank}: {trained} "
        f"{'preference pairs' if kind == 'dpo' else 'examples'}, {held_out} held out, {hyperparameters.n_epochs} "
        "epochs."
    )
    return examples, recipe, hyperparameters


def _keep(outcome: Outcome, scratch: Path, out: Path) -> None:
    """Move the adapter to where it was wanted, and say how good it is."""
    (scratch / ADAPTER).rename(out)
    for line in compared(outcome):
        print(line)
    print(f"{out} holds {manifest_load((out / MANIFEST_FILE).read_bytes()).name}.")


def compared(outcome: Outcome) -> Iterator[str]:
    """How the adapter does on what was held out, a sentence each."""
    base, memory = outcome.against_base, outcome.against_memory
    if base is None:
        yield "Nothing was held out, so nothing says whether the adapter is better than the base model."
        return
    if isinstance(base, PreferenceComparison):
        yield (
            f"Of {base.pairs} held-out pairs the better answer is the likelier one in {base.accuracy:.0%} before and "
            f"{base.adapter_accuracy:.0%} after: a change of {_interval(base)}."
        )
        takes = f"{FEWEST_PAIRS} pairs"
    else:
        yield (
            f"Held-out loss {base.loss:.3f} before, {base.adapter_loss:.3f} after: a change of {_interval(base)}, on "
            f"{base.tokens} tokens of {base.conversations} conversations."
        )
        takes = f"{FEWEST_TOKENS} tokens of {FEWEST_CONVERSATIONS} conversations"
    if not base.enough:
        yield f"That is too little to judge by: it takes {takes}."
    if base.worse:
        yield "The adapter is worse than the base model on what it was not trained on."
    if memory is not None:
        if isinstance(memory, PreferenceComparison):
            what, theirs, ours = "accuracy", f"{memory.accuracy:.0%}", f"{memory.adapter_accuracy:.0%}"
        else:
            what, theirs, ours = "loss", f"{memory.loss:.3f}", f"{memory.adapter_loss:.3f}"
        yield (
            f"With {memory.quoted} training conversations in the system prompt instead ({memory.prompt_tokens} tokens) "
            f"the base model's {what} is {theirs}, the adapter's there {ours}: a difference of {_interval(memory)}."
        )
        if memory.worse:
            yield "Such a prompt does better than the adapter."


def _interval(comparison: Comparison | PreferenceComparison) -> str:
    if isinstance(comparison, PreferenceComparison):
        return f"{comparison.low:+.0%} to {comparison.high:+.0%} (95 %)"
    return f"{comparison.low:+.3f} to {comparison.high:+.3f} (95 %)"


def decide(arguments: argparse.Namespace, *, type: JobType, examples: int) -> tuple[Recipe, Hyperparameters]:
    """What was asked for, and the method's defaults for the rest. Raises ValidationError; UserFault for a beta that
    nothing needs."""
    if arguments.beta is not None and type == "supervised":
        raise UserFault("recipe_unfit", "--beta is of preference pairs, and this file has none.")
    method = arguments.method
    defaults = DEFAULTS[method]
    asked = {key: value for key, value in vars(arguments).items() if value is not None}
    recipe = Recipe(
        method=method,
        position=arguments.position,
        rank=asked.get("rank", defaults.rank),
        target_modules=asked.get("target_modules"),
        layers=asked.get("layers"),
    )
    batch_size = asked.get("batch_size", min(defaults.batch_size, max(1, examples)))
    settled = Hyperparameters(
        n_epochs=asked.get("epochs", 1),
        batch_size=batch_size,
        learning_rate=asked.get("learning_rate", defaults.learning_rate(type)),
        seed=arguments.seed,
        beta=asked.get("beta", DEFAULT_BETA) if type == "dpo" else None,
    )
    if "epochs" not in asked:
        epochs = auto_epochs(method, examples=examples, batch_size=batch_size)
        settled = settled.model_copy(update={"n_epochs": epochs})
    return recipe, settled


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="attune-train", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "data", type=Path, nargs="+", help="conversations, one a line; of several files each is a user's"
    )
    parser.add_argument("--base", type=Path, required=True, help="the base model's folder")
    parser.add_argument("--out", type=Path, default=Path("adapter"), help="a folder that is not there yet")
    parser.add_argument("--method", choices=sorted(DEFAULTS), default="direft")
    parser.add_argument("--position", choices=["prefill", "all"], default="prefill")
    parser.add_argument("--rank", type=int)
    parser.add_argument(
        "--target-modules",
        type=lambda names: tuple(names.split(",")),
        metavar="NAME,…",
        help=f"lora: the projections to adapt, all of them unless chosen ({','.join(TARGET_MODULES)})",
    )
    parser.add_argument(
        "--layers",
        type=_numbers,
        metavar="NUMBER,…",
        help="the decoder layers to adapt, counted from 0; all of them unless chosen",
    )
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument(
        "--beta",
        type=float,
        help=f"preference pairs: how much it costs to move away from the base model ({DEFAULT_BETA})",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--held-out",
        type=float,
        default=HELD_OUT_SHARE,
        help=f"share of conversations to judge by ({HELD_OUT_SHARE}), if there are at least {HELD_OUT_FEWEST}",
    )
    parser.add_argument(
        "--preview", action="store_true", help="show which tokens would be learned, and train nothing"
    )
    arguments = parser.parse_args(argv)
    for path in arguments.data:
        if not path.is_file():
            parser.error(f"there is no file {path}")
    if len({path.stem for path in arguments.data}) < len(arguments.data):
        parser.error("two files have the same name, and an adapter's folder is named after its file")
    if not (arguments.base / "config.json").is_file():
        parser.error(f"{arguments.base} is not the folder of a model: it has no config.json")
    if arguments.out.exists():
        parser.error(f"{arguments.out} is there already: choose another --out, or remove it")
    if not 0 <= arguments.held_out <= HELD_OUT_MOST_SHARE:
        parser.error(f"--held-out is a share from 0 to {HELD_OUT_MOST_SHARE}")
    return arguments


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def main(argv: list[str] | None = None) -> None:
    try:
        train(parse(argv))
    except JobFault as fault:
        sys.exit(f"{fault.message} ({fault.code})")
    except TemplateUnfit as error:
        sys.exit(f"This base model cannot be trained on conversations: {error}")
    except ValidationError as error:
        sys.exit(f"Not a setting that can be trained with: {reason_of(error)}")


if __name__ == "__main__":
    main()
