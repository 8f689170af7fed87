"""Who is there to train: trainers say hello every few seconds."""

import uuid
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import QuerySet
from django.db.models.functions import Now

from training_jobs.messages import PRESENCE_SECONDS, WorkerHello
from webapp.jobs.models import Worker

#: Missing three hellos is being gone.
_GONE = timedelta(seconds=3 * PRESENCE_SECONDS + 1)


def worker_hello(*, worker: uuid.UUID, hello: WorkerHello) -> None:
    said = {
        "bases": hello.bases,
        "device": hello.device[:100],
        "busy": hello.busy,
        "together": hello.together,
        "alone": hello.alone,
    }
    Worker.objects.update_or_create(id=worker, defaults={**said, "last_seen": Now()})


def workers_alive() -> QuerySet[Worker]:
    return Worker.objects.filter(last_seen__gt=Now() - _GONE)


@dataclass(frozen=True)
class Idle:
    """A living trainer that has nothing to do: the base models that it can train, and how many small jobs at once, but
    for the bases that it trains for one job `alone`."""

    bases: frozenset[str]
    together: int
    alone: frozenset[str]

    def most_of(self, base: str) -> int:
        """So many jobs of this base it wants in one message."""
        return 1 if base in self.alone else self.together


def idle_workers() -> list[Idle]:
    return [
        Idle(frozenset(worker.bases), worker.together, frozenset(worker.alone))
        for worker in workers_alive().filter(busy=False)
    ]


def workers_forget() -> None:
    """Trainers that left long ago."""
    Worker.objects.filter(last_seen__lt=Now() - timedelta(days=1)).delete()
