"""Who is there to train: trainers say hello every few seconds."""

import uuid
from collections import Counter
from datetime import timedelta

from django.db.models.functions import Now

from training_jobs.messages import PRESENCE_SECONDS, WorkerHello
from webapp.jobs.models import Worker

#: Missing three hellos is being gone.
GONE = timedelta(seconds=3 * PRESENCE_SECONDS + 1)


def worker_hello(*, worker: uuid.UUID, hello: WorkerHello) -> None:
    said = {"bases": hello.bases, "device": hello.device[:100], "busy": hello.busy, "last_seen": Now()}
    Worker.objects.update_or_create(id=worker, defaults=said)


def idle_workers() -> Counter[str]:
    """How many living trainers have nothing to do, by base model."""
    idle = Worker.objects.filter(last_seen__gt=Now() - GONE, busy=False)
    return Counter(base for worker in idle for base in worker.bases)


def workers_forget() -> None:
    """Trainers that left long ago."""
    Worker.objects.filter(last_seen__lt=Now() - timedelta(days=1)).delete()
