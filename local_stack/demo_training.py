"""Upload a person's chats and follow the job that learns from them, all through the unmodified OpenAI client."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from openai import APIStatusError, OpenAI
from openai.types import FileObject
from openai.types.fine_tuning import FineTuningJobEvent

from local_stack.demo_people import Person
from local_stack.home import StackError

ENDED = ("succeeded", "failed", "cancelled")
POLL_SECONDS = 1.0
PATIENCE_SECONDS = 1800
LISTED = 5
SEED = 1  # the same adapter each time, as far as the machine allows


@dataclass
class Run:
    """One job, as the API tells it. Losses are nats per token, `seconds` those of training alone."""

    person: Person
    job: str
    total: int | None = None
    step: int = 0
    loss: float | None = None
    state: str = "queued"
    before: float | None = None  # held-out loss of the base model
    after: float | None = None  # of the adapter
    seconds: float | None = None
    adapter: str | None = None
    problem: str | None = None
    notes: list[str] = field(default_factory=list)  # what the API said of the files
    _last_event: str | None = None

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def succeeded(self) -> bool:
        return self.state == "succeeded" and self.adapter is not None


def run_start(client: OpenAI, *, person: Person, base: str, n_epochs: int | None = None) -> Run:
    """Upload both parts and create the job; the API chooses what is not given.

    Raises StackError with the API's report of bad rows.
    """
    training = upload(client, name=f"{person.user}.jsonl", content=person.training)
    validation = upload(client, name=f"{person.user}.validation.jsonl", content=person.validation)
    try:
        job = client.fine_tuning.jobs.create(
            model=base,
            training_file=training.id,
            validation_file=validation.id,
            metadata={"user": person.user},
            seed=SEED,
            method={
                "type": "supervised",
                "supervised": {"hyperparameters": {"n_epochs": n_epochs or "auto"}},
            },
            extra_body={"adapter": {"method": person.method, "position": "prefill"}},
        )
    except APIStatusError as error:
        raise StackError(f"The job for {person.title} was refused: {message_of(error)}") from None
    return Run(person, job.id, notes=[note for file in (training, validation) for note in problems(file)])


def upload(client: OpenAI, *, name: str, content: bytes) -> FileObject:
    """The file with its report. Raises StackError when none of it can be used."""
    try:
        file = client.files.create(file=(name, content), purpose="fine-tune")
    except APIStatusError as error:
        raise StackError(f"{name} was refused: {message_of(error)}") from None
    if file.status == "error":
        raise StackError("\n".join([f"{name} cannot be used. {file.status_details}", *problems(file)]))
    return file


def problems(file: FileObject) -> list[str]:
    """The first bad rows of the API's report (Attune's own field), a line each."""
    rows = file.report["problems"]
    listed = [f"{file.filename}, line {row['line']}: {row['reason']}. {row['fix']}" for row in rows[:LISTED]]
    rest = file.report["bad"] - len(listed)
    return [*listed, f"… and {rest} more rows that cannot be used."] if rest > 0 else listed


def runs_follow(client: OpenAI, runs: list[Run], *, changed: Callable[[Run], None]) -> None:
    """Until every job has ended; `changed` is called with each one that has news."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not all(run.ended for run in runs):
        if time.monotonic() > deadline:
            raise StackError(f"The jobs did not end within {PATIENCE_SECONDS // 60} minutes.")
        for run in runs:
            if not run.ended:
                run_update(client, run)
                changed(run)
        time.sleep(POLL_SECONDS)


def run_update(client: OpenAI, run: Run) -> None:
    # The job first: events that came before its end are then never missed.
    job = client.fine_tuning.jobs.retrieve(run.job)
    for event in new_events(client, run):
        run_hear(run, event)
    # Attune's own field, which the client passes through: OpenAI has fewer states, and no count of steps.
    run.state, run.total = job.progress["state"], job.progress["total_steps"] or None
    if run.ended:
        report = job.report or {}
        run.before, run.after = report.get("held_out_loss_before"), report.get("held_out_loss_after")
        run.seconds = report.get("train_seconds")
        run.adapter = job.fine_tuned_model
        run.problem = job.error.message if job.error else None


def new_events(client: OpenAI, run: Run) -> list[FineTuningJobEvent]:
    """Those since the last call, oldest first (the API lists the newest first)."""
    fresh: list[FineTuningJobEvent] = []
    for event in client.fine_tuning.jobs.list_events(run.job, limit=100):
        if event.id == run._last_event:
            break
        fresh.append(event)
    if fresh:
        run._last_event = fresh[0].id
    return fresh[::-1]


def run_hear(run: Run, event: FineTuningJobEvent) -> None:
    data: dict[str, Any] = event.data if isinstance(event.data, dict) else {}
    run.step = max(run.step, int(data.get("step", 0)))
    run.loss = data.get("train_loss", run.loss)


def message_of(error: APIStatusError) -> str:
    body = error.body if isinstance(error.body, dict) else {}
    return str(body.get("message") or error.message)
