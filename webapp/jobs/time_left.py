"""How long a training will still take: by its own pace, and before it has one by that of the tenant's last ones.

Never by other tenants' jobs: how fast those were says what is in them.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from statistics import median

from django.db.models import Q
from django.utils import timezone

from webapp.jobs.models import Job, JobEvent, State

_RECENT = timedelta(minutes=1)
#: Enough of them to cover that minute: trainers tell of 200 steps in all, every few seconds.
_EVENTS = 100
_PAST_JOBS = 5


def time_left(job: Job) -> float | None:
    """Seconds of training that are left, at the least for a job that waits; None where nothing is known."""
    if job.state == State.RUNNING and job.step:
        told = JobEvent.objects.filter(job=job, metrics__has_key="step").order_by("-id")[:_EVENTS]
        return seconds_left(job, list(told)[::-1], timezone.now())
    if job.state not in (State.QUEUED, State.DISPATCHED, State.RUNNING, State.PAUSED):
        return None
    speed = _past_speed(job)
    if speed is None:
        return None
    done = job.step / job.total_steps if job.total_steps else 0.0
    return job.conversations_size * job.hyperparameters["n_epochs"] * (1 - done) / speed


def _past_speed(job: Job) -> float | None:
    """Bytes of conversations learned a second: the median of the tenant's last jobs like this one.

    Alike are base model, adapter and type: a preference pair takes longer than as many bytes of conversations.
    """
    pairs = Q(hyperparameters__has_key="beta")
    past = Job.objects.filter(
        pairs if "beta" in job.hyperparameters else ~pairs,
        tenant=job.tenant_id,
        base=job.base_id,
        recipe__method=job.recipe["method"],
        state=State.SUCCEEDED,
        report__train_seconds__gt=0,
        training_file__examples_count__gt=0,
    ).select_related("training_file")
    speeds = []
    for other in past.order_by("-created_at")[:_PAST_JOBS]:
        passes = other.step * other.hyperparameters["batch_size"] / other.training_file.examples_count
        speeds.append(other.conversations_size * passes / other.report["train_seconds"])
    return median(speeds) if speeds and median(speeds) > 0 else None


def seconds_left(job: Job, events: Sequence[JobEvent], now: datetime) -> float | None:
    """From the pace of the last minute; None where there is no telling."""
    if job.state != State.RUNNING or not job.step or not job.total_steps:
        return None
    pace = _recent_pace(events)
    if pace is None:
        # `started_at` is of the first attempt: of a later one it tells nothing.
        if job.started_at is None or job.epoch > 1:
            return None
        pace = (now - job.started_at).total_seconds() / job.step
    return pace * max(0, job.total_steps - job.step)


def _recent_pace(events: Sequence[JobEvent]) -> float | None:
    """Seconds a step. Events come by the heartbeat, many at one time, so only the last step of each time counts."""
    reached: dict[datetime, float] = {}
    for event in events:
        if event.metrics and "step" in event.metrics:
            # A step back is a new attempt from a checkpoint, at a pace of its own.
            if reached and event.metrics["step"] < max(reached.values()):
                reached = {}
            reached[event.created_at] = event.metrics["step"]
    recent = [(at, step) for at, step in reached.items() if max(reached) - at <= _RECENT]
    if len(recent) < 2 or recent[-1][1] == recent[0][1]:
        return None
    return (recent[-1][0] - recent[0][0]).total_seconds() / (recent[-1][1] - recent[0][1])
