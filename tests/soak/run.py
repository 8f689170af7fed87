"""One soak: a customer's jobs, so many kills at random, and what holds and what it cost in the end."""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from local_stack.demo_accounts import accounts_create
from local_stack.home import StackError
from tests.soak.checks import problems
from tests.soak.customer import USERS, Customer
from tests.soak.faults import Kill, Killer
from tests.soak.parts import Parts, parts

#: Unfinished at a time: with one alone the trainer would stand still while a lease lapses.
AT_ONCE = 3
_LAST_JOBS_SECONDS = 600.0


@dataclass(frozen=True)
class Cost:
    """What a job lost with its trainer: seconds until its lease had lapsed, until another attempt began, and the steps
    that were done twice, as far as the web application had heard of them."""

    noticed: float
    again: float
    steps: int


@dataclass(frozen=True)
class Outcome:
    """`lapses`: attempts that ended with their lease; `costs`: of the kills that took a job's trainer."""

    seconds: float
    jobs: int
    lapses: int
    kills: list[Kill]
    costs: list[Cost]
    problems: list[str]


def soak(*, kills: int, seed: int, told: Callable[[Kill], None], together: int = 1) -> Outcome:
    """Start everything, kill `kills` times, and look when the last job has ended. `told` hears of every kill.

    With more than one job `together` adapters are not compared with those of the same jobs undisturbed: in other
    company they differ by rounding.

    Raises StackError if jobs do not end.
    """
    with parts(together=together) as here:
        key = accounts_create(here.stack, end_user=USERS[0]).api_key
        customer = Customer(url=here.stack.urls["web"], api_key=key, at_once=AT_ONCE)
        killer = Killer(here, seed)
        began = time.monotonic()
        customer.start()
        try:
            while len(killer.done) < kills and customer.fault is None:
                told(killer.kill_one())
            customer.enough.set()
            customer.join(_LAST_JOBS_SECONDS)
            if customer.is_alive() or customer.fault is not None:
                raise StackError(f"The jobs {customer.open} did not end: {_states(here)}") from customer.fault
            seconds = time.monotonic() - began
            undisturbed = _again(here, customer) if together == 1 else []
            return Outcome(
                seconds=seconds,
                jobs=len(customer.numbers),
                lapses=here.rows("SELECT sum(failed_attempts)::int AS lapses FROM jobs_job")[0]["lapses"],
                kills=killer.done,
                costs=[cost for kill in killer.done if kill.job and (cost := _cost(here, kill))],
                problems=problems(here, customer) + undisturbed,
            )
        finally:
            customer.client.close()


def _again(here: Parts, customer: Customer) -> list[str]:
    """What the job with the most attempts made, against the same job when nothing is killed."""
    worst = here.rows("SELECT id FROM jobs_job ORDER BY epoch DESC LIMIT 1")[0]["id"]
    again = uuid.UUID(
        customer.submit(customer.numbers[f"ftjob-{worst.hex}"], again=True).removeprefix("ftjob-")
    )
    customer.wait()
    made = here.rows("SELECT DISTINCT digest FROM adapters_adapter WHERE job_id = ANY(%s)", [worst, again])
    return (
        []
        if len(made) == 1
        else [f"{worst} and the same job, undisturbed, made {len(made)} different adapters"]
    )


def _states(here: Parts) -> list[dict[str, object]]:
    return here.rows(
        "SELECT id, state, epoch, failed_attempts, error_code FROM jobs_job WHERE state <> 'succeeded'"
    )


def _cost(here: Parts, kill: Kill) -> Cost | None:
    """None if the job had just been completed when its trainer was killed."""
    events = here.rows(
        "SELECT message, (metrics->>'step')::float AS step, extract(epoch FROM created_at)::float AS at "
        "FROM jobs_jobevent WHERE job_id = %s AND created_at > to_timestamp(%s) ORDER BY id",
        kill.job,
        kill.at,
    )
    lapsed = [event["at"] for event in events if event["message"].startswith("The trainer fell silent")]
    attempts = [index for index, event in enumerate(events) if event["message"].startswith("Attempt ")]
    if not lapsed or not attempts:
        return None
    steps = [event["step"] for event in events[attempts[0] :] if event["step"] is not None]
    return Cost(
        noticed=lapsed[0] - kill.at,
        again=events[attempts[0]]["at"] - kill.at,
        steps=max(0, kill.step + 1 - int(steps[0])),
    )
