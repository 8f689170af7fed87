"""A company that uploads, trains and waits, by the unmodified client, and asks again with the same key when cut off."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import httpx
import openai

from tests.soak.parts import BASE

#: Whose models they become: two of one company, so that versions and active adapters change hands.
USERS = ("ada", "ben")
ROWS, EPOCHS, BATCH = 24, 40, 4
_ENDED = ("succeeded", "failed", "cancelled")
_PATIENCE_SECONDS = 300.0

T = TypeVar("T")


class Customer(threading.Thread):
    """Keeps `at_once` jobs unfinished until `enough` is set, and then waits for the last one.

    `ended`: each job's final status, as first seen. `numbers`: what each job was made of (`submit`). `fault`: what
    ended the thread before its time.
    """

    def __init__(self, *, url: str, api_key: str, at_once: int) -> None:
        super().__init__(name="customer", daemon=True)
        self.client = openai.OpenAI(
            api_key=api_key,
            base_url=f"{url}/v1",
            max_retries=0,
            timeout=30,
            http_client=httpx.Client(trust_env=False, timeout=30),
        )
        self.enough = threading.Event()
        self.open: list[str] = []
        self.ended: dict[str, str] = {}
        self.numbers: dict[str, int] = {}
        self.fault: BaseException | None = None
        self._at_once = at_once

    def run(self) -> None:
        try:
            while not self.enough.is_set():
                if len(self.open) < self._at_once:
                    self.submit(len(self.numbers))
                self._look()
            self.wait()
        except BaseException as fault:
            self.fault = fault

    def wait(self) -> None:
        """Until all have ended."""
        while self.open:
            self._look()

    def submit(self, number: int, *, again: bool = False) -> str:
        """The job's id: a file and a seed of its own for each `number`, and the very same `again`.

        Each request has one effect, however often it has to be sent.
        """
        key = f"{number} again" if again else f"{number}"
        file = patiently(
            lambda: self.client.files.create(
                file=(f"{number}.jsonl", _conversations(number)),
                purpose="fine-tune",
                extra_headers={"Idempotency-Key": key},
            )
        )
        hyperparameters: Any = {"n_epochs": EPOCHS, "batch_size": BATCH}
        job = patiently(
            lambda: self.client.fine_tuning.jobs.create(
                model=BASE,
                training_file=file.id,
                metadata={"user": USERS[number % len(USERS)]},
                seed=number,
                method={"type": "supervised", "supervised": {"hyperparameters": hyperparameters}},
                # All steps are done, so that what was trained is known beforehand.
                extra_body={"held_out": 0},
                extra_headers={"Idempotency-Key": key},
            )
        )
        self.numbers[job.id] = number
        self.open.append(job.id)
        return job.id

    def _look(self) -> None:
        time.sleep(0.5)
        for job in list(self.open):
            status = patiently(lambda job=job: self.client.fine_tuning.jobs.retrieve(job)).status
            if status in _ENDED:
                self.open.remove(job)
                self.ended[job] = status


def patiently(ask: Callable[[], T]) -> T:
    """Ask again while the web application is away. Raises what it refuses for good."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return ask()
        except (openai.APIConnectionError, openai.InternalServerError, openai.RateLimitError):
            if time.monotonic() > deadline:
                raise
        time.sleep(0.3)


def _conversations(number: int) -> bytes:
    """Other words in every file, and as many in all of them."""
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"Question {number:03} {row:02}?"},
                {"role": "assistant", "content": f"Answer {number:03} {row:02}."},
            ]
        }
        for row in range(ROWS)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()
