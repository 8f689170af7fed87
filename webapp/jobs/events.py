"""Lines of a job's history."""

import math
from collections.abc import Iterable

from training_jobs.messages import Event
from webapp.jobs.models import Job, JobEvent


def event_add(
    *, job: Job, message: str, level: str = "info", metrics: dict[str, float] | None = None
) -> None:
    """Texts are ours or a trainer's about the run; they never quote a row."""
    JobEvent.objects.create(
        tenant_id=job.tenant_id, job=job, level=level, message=message[:500], metrics=metrics
    )


def events_add(*, job: Job, events: Iterable[Event]) -> None:
    """What a trainer reported, each event once: it sends those again whose answer it did not hear.

    `job` is locked. Metrics that are not finite are left out: JSON has none.
    """
    news = [event for event in events if event.number > job.events_heard]
    if not news:
        return
    job.events_heard = max(event.number for event in news)
    Job.objects.filter(id=job.id).update(events_heard=job.events_heard)
    JobEvent.objects.bulk_create(
        JobEvent(
            tenant_id=job.tenant_id,
            job=job,
            level=event.level,
            message=event.message.replace("\x00", ""),
            metrics=_finite(event.metrics),
        )
        for event in news
    )


def _finite(metrics: dict[str, float] | None) -> dict[str, float] | None:
    return None if metrics is None else {key: value for key, value in metrics.items() if math.isfinite(value)}
