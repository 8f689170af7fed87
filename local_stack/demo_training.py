"""Upload a person's chats and follow the job that learns from them, all through the unmodified OpenAI client."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from openai import APIStatusError, OpenAI
from openai.types.fine_tuning import FineTuningJob, FineTuningJobEvent

from local_stack.demo_people import Person
from local_stack.home import StackError

ENDED = ("succeeded", "failed", "cancelled")
POLL_SECONDS = 1.0
PATIENCE_SECONDS = 1800


@dataclass
class Run:
    """One job as its events tell it. Losses are nats per token; `seconds` is from the first step to the verdict."""

    person: Person
    job: str
    total: int | None = None
    step: int = 0
    loss: float | None = None
    state: str = "queued"
    held_out: list[float] = field(default_factory=list)  # before training, while it goes on, after
    adapter: str | None = None
    problem: str | None = None
    seconds: float | None = None
    _began: float | None = None
    _last_event: str | None = None

    @property
    def before(self) -> float | None:
        return self.held_out[0] if len(self.held_out) > 1 else None

    @property
    def after(self) -> float | None:
        return self.held_out[-1] if len(self.held_out) > 1 else None

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
            training_file=training,
            validation_file=validation,
            metadata={"user": person.user},
            method={
                "type": "supervised",
                "supervised": {"hyperparameters": {"n_epochs": n_epochs or "auto"}},
            },
            extra_body={"adapter": {"method": person.method, "position": "prefill"}},
        )
    except APIStatusError as error:
        raise StackError(f"The job for {person.title} was refused: {message_of(error)}") from None
    return Run(person, job.id)


def upload(client: OpenAI, *, name: str, content: bytes) -> str:
    """The file's id."""
    try:
        file = client.files.create(file=(name, content), purpose="fine-tune")
    except APIStatusError as error:
        raise StackError(f"{name} was refused: {message_of(error)}") from None
    if file.status == "error":
        raise StackError(f"{name} cannot be used: {file.status_details}")
    return file.id


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
    run.state = job.status
    run.total = run.total or total_steps(job, run.person)
    if job.status == "running" and run._began is None:
        run._began = time.monotonic()
    if run.ended:
        run.adapter = job.fine_tuned_model
        run.seconds = time.monotonic() - run._began if run._began else None
        if job.error and job.error.message:
            run.problem = job.error.message


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
    if "full_valid_loss" in data:
        run.held_out.append(float(data["full_valid_loss"]))


def total_steps(job: FineTuningJob, person: Person) -> int | None:
    """Steps in all, once the API has decided what "auto" means."""
    chosen = job.hyperparameters
    if not isinstance(chosen.n_epochs, int) or not isinstance(chosen.batch_size, int):
        return None
    return chosen.n_epochs * math.ceil(person.examples / chosen.batch_size)


def message_of(error: APIStatusError) -> str:
    body = error.body if isinstance(error.body, dict) else {}
    return str(body.get("message") or error.message)
