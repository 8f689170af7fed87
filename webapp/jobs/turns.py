"""What fairness (fairness.py) knows of the database: each tenant's line, and the virtual time that it has used.

Only the dispatcher writes it, under its advisory lock.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.db.models import Count, F, Max, QuerySet

from webapp.jobs.fairness import Line, Turn, Waiting, order
from webapp.jobs.models import TERMINAL, Job, Outbox, Share, State
from webapp.jobs.waiting import ready
from webapp.jobs.workers import workers_alive
from webapp.tenants.models import Tenant

#: Jobs that have a trainer, or will have one in a moment.
TRAINING = (State.DISPATCHED, State.RUNNING)


def running_jobs() -> Counter[UUID]:
    """How many trainers each tenant has."""
    rows = Job.objects.filter(state__in=TRAINING).values_list("tenant").annotate(Count("id"))
    return Counter(dict(rows))


def waiting(bases: Iterable[str]) -> QuerySet[Outbox]:
    """The lines of queued jobs on these bases that are not set aside."""
    return Outbox.objects.filter(ready(of="job__"), job__state=State.QUEUED, job__base__name__in=bases)


def unprepared() -> UUID | None:
    """The job to be prepared next: the first in the order of turns of those that are still to be validated.

    Those that were set aside come after all others: what could not be read once may not be read the next time either.
    """
    begun = Outbox.objects.filter(ready(of="job__"), job__state__in=(State.VALIDATING, State.QUEUED))
    left = dict(begun.filter(job__state=State.VALIDATING).values_list("job", "job__wait_until"))
    turns = order(lines_of(begun), clock=clock(), slot_for_each=False) if left else []
    line = [turn.job.job for turn in turns if turn.job.job in left]
    return min(line, key=lambda job: left[job] is not None, default=None)


def lines_of(rows: QuerySet[Outbox]) -> list[Line]:
    """The tenants of `rows` with those of their jobs, oldest first, and the tenants that train without waiting."""
    fields = rows.order_by("id").values_list(
        "tenant",
        "id",
        "job",
        "job__base__name",
        "job__training_file__examples_count",
        "job__hyperparameters",
        "job__charged",
    )
    jobs: dict[UUID, list[Waiting]] = {}
    for tenant, since, job, base, examples, hyperparameters, charged in fields:
        # What was charged once is not charged again, however often a job changes its trainer.
        work = 0 if charged else work_of(examples, hyperparameters)
        jobs.setdefault(tenant, []).append(Waiting(job, base, since, work))
    running = running_jobs()
    return [
        Line(tenant, weight, cap, running[tenant], served or 0.0, jobs.get(tenant, []))
        for tenant, weight, cap, served in Tenant.objects.filter(id__in={*jobs, *running}).values_list(
            "id", "plan__weight", "plan__running_jobs", "share__served"
        )
    ]


def work_of(examples: int, hyperparameters: dict[str, Any]) -> float:
    """Passes over an answer, of which a preference pair has two; as good a measure of a trainer's time as there is
    before a tokenizer has seen it."""
    answers = 2 if "beta" in hyperparameters else 1
    return float(max(1, examples * hyperparameters["n_epochs"]) * answers)


def slot_for_each() -> bool:
    """Whether there are as many trainers as tenants that have or want one."""
    bases = {base for each in workers_alive().values_list("bases", flat=True) for base in each}
    tenants = {*running_jobs(), *waiting(bases).values_list("tenant", flat=True).distinct()}
    return workers_alive().count() >= len(tenants)


def clock() -> float:
    return Share.objects.aggregate(now=Max("clock"))["now"] or 0.0


def turn_charge(turn: Turn, clock: float) -> None:
    """The tenant moves on in virtual time."""
    after = {"served": turn.finish, "clock": clock}
    Share.objects.update_or_create(tenant_id=turn.line.tenant, defaults=after)
    if turn.finish > turn.start:
        Job.objects.filter(id=turn.job.job).update(charged=turn.finish - turn.start)


def turns_settle() -> None:
    """Give back what was charged for work that was never done: jobs that were cancelled, failed or ended early."""
    ended = Job.objects.filter(state__in=TERMINAL, charged__gt=0).select_related("training_file")
    for job in ended:
        passes = max(1, job.training_file.examples_count * job.hyperparameters["n_epochs"])
        done = min(1.0, job.step * job.hyperparameters["batch_size"] / passes)
        Share.objects.filter(tenant=job.tenant_id).update(served=F("served") - job.charged * (1 - done))
        Job.objects.filter(id=job.id).update(charged=0)
