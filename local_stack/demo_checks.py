"""What must hold for the demo to have worked, each with a sentence for when it does not."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from local_stack.demo_answers import BASE_HEADER, Answer, Answers
from local_stack.demo_training import Run


@dataclass(frozen=True)
class Check:
    what: str
    held: bool
    why_not: str = ""


def checks(*, runs: list[Run], first: list[Answer], answers: Answers, whole: str) -> list[Check]:
    """`first`: the base model's answers before training; `whole`: the last column's first answer, not streamed."""
    return [
        *(check for run in runs for check in of_training(run)),
        *(check for run in runs if run.succeeded for check in of_answers(run, answers)),
        *of_each_other(runs, answers),
        of_base(first, answers[None]),
        of_streaming(answers, whole),
    ]


def of_training(run: Run) -> Iterator[Check]:
    who = run.person.title
    yield Check(
        f"{who}: the job succeeded",
        run.succeeded,
        f"it ended as {run.state!r}" + (f": {run.problem}" if run.problem else " and gave no reason"),
    )
    known = run.before is not None and run.after is not None
    yield Check(
        f"{who}: held-out loss went down",
        known and run.after < run.before,  # type: ignore[operator]
        f"it went from {run.before:.3f} to {run.after:.3f}; with a file this small, try more or more alike chats"
        if known
        else "the job's report has no held-out loss from before and after training",
    )


def of_answers(run: Run, answers: Answers) -> Iterator[Check]:
    who, own, base = run.person.title, answers[run.person.user], answers[None]
    same = sum(mine.text == other.text for mine, other in zip(own, base, strict=True))
    yield Check(
        f"{who}: answers differ from the base model's",
        # A file of your own may teach what the base model says anyway; most answers must show the person.
        same * 2 < len(own) and all(answer.text.strip() for answer in own),
        f"{same} of {len(own)} are the same, or some are empty: the adapter did not act on those",
    )
    strange = {(answer.model, answer.adapter_header) for answer in own} - {(run.adapter, run.adapter)}
    yield Check(
        f"{who}: every answer names the adapter",
        not strange,
        f"expected {run.adapter} as model and as x-attune-adapter, but got {sorted(map(str, strange))}",
    )


def of_each_other(runs: list[Run], answers: Answers) -> Iterator[Check]:
    trained = [run for run in runs if run.succeeded]
    for one, other in pairwise(trained):
        pairs = zip(answers[one.person.user], answers[other.person.user], strict=True)
        same = sum(mine.text == theirs.text for mine, theirs in pairs)
        yield Check(
            f"{one.person.title} and {other.person.title} answer differently",
            same == 0,
            f"{same} answers are the same word for word: one spoke through the other's adapter, or through none",
        )


def of_base(first: list[Answer], now: list[Answer]) -> Check:
    changed = sum(before.text != after.text for before, after in zip(first, now, strict=True))
    named = {answer.adapter_header for answer in (*first, *now)} - {BASE_HEADER}
    return Check(
        "The base model answers as before training",
        changed == 0 and not named,
        f"{changed} of {len(now)} answers changed"
        + (f" and x-attune-adapter said {sorted(named)}" if named else "")
        + ", so an adapter leaked into requests that have none",
    )


def of_streaming(answers: Answers, whole: str) -> Check:
    column = next(reversed(answers))
    answer = answers[column][0]
    return Check(
        "Streaming works",
        answer.pieces > 1 and answer.text == whole,
        f"the answer came in {answer.pieces} piece(s)"
        if answer.pieces <= 1
        else f"streamed, it was {answer.text!r}; not streamed, {whole!r}",
    )
