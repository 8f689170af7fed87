"""Sums over usage rows. Numbers only: there is nothing else in them."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Aggregate, Avg, Count, F, FloatField, Max, Q, QuerySet, Sum
from django.db.models.functions import Coalesce, TruncDay
from django.utils import timezone

from webapp.jobs.models import TERMINAL, Job, State
from webapp.jobs.workers import workers_alive
from webapp.tenants.models import Tenant
from webapp.usage.models import UsageRow


class Percentile(Aggregate):
    """PostgreSQL's percentile_cont: NULLs are left out, None without rows."""

    function = "PERCENTILE_CONT"
    template = "%(function)s(%(fraction)s) WITHIN GROUP (ORDER BY %(expressions)s)"
    output_field = FloatField()

    def __init__(self, expression: str, fraction: float, **extra: Any) -> None:
        super().__init__(expression, fraction=fraction, **extra)


@dataclass(frozen=True)
class Window:
    """A stretch of time up to now."""

    key: str
    name: str
    length: timedelta

    @property
    def since(self) -> datetime:
        return timezone.now() - self.length


WINDOWS = (
    Window("5m", "5 minutes", timedelta(minutes=5)),
    Window("1h", "hour", timedelta(hours=1)),
    Window("1d", "day", timedelta(days=1)),
    Window("30d", "30 days", timedelta(days=30)),
)


def window(key: str | None, default: str) -> Window:
    known = {window.key: window for window in WINDOWS}
    return known.get(key or default, known[default])


def chat_rows(window: Window, tenant: Tenant | None = None) -> QuerySet[UsageRow]:
    rows = UsageRow.objects.filter(kind="chat", created_at__gte=window.since)
    return rows if tenant is None else rows.filter(tenant=tenant)


_SUMS = {
    "requests": Count("id"),
    "failures": Count("id", filter=Q(status__gte=500)),
    "input_tokens": Coalesce(Sum("input_tokens"), 0),
    "cached_tokens": Coalesce(Sum("cached_tokens"), 0),
    "output_tokens": Coalesce(Sum("output_tokens"), 0),
}


def totals(rows: QuerySet[UsageRow], window: Window) -> dict[str, Any]:
    """The window's sums, tokens a second over the window, and the time to the first token."""
    found = rows.aggregate(
        **_SUMS,
        p50=Percentile("first_token_seconds", 0.5),
        p95=Percentile("first_token_seconds", 0.95),
        p99=Percentile("first_token_seconds", 0.99),
        mean_seconds=Avg("seconds"),
    )
    return found | {"tokens_per_second": found["output_tokens"] / window.length.total_seconds()}


def by(rows: QuerySet[UsageRow], **names: str) -> QuerySet[UsageRow, dict[str, Any]]:
    """Sums a group, the busiest first: `by(rows, tenant_name="tenant__name")`; groups are told apart by all names."""
    grouped = rows.values(**{name: F(path) for name, path in names.items()})
    return grouped.annotate(
        **_SUMS, p50=Percentile("first_token_seconds", 0.5), last=Max("created_at")
    ).order_by("-output_tokens", "-requests")


def by_day(rows: QuerySet[UsageRow]) -> QuerySet[UsageRow, dict[str, Any]]:
    return rows.annotate(day=TruncDay("created_at")).values("day").annotate(**_SUMS).order_by("-day")


def training_queue() -> dict[str, int]:
    """Unfinished jobs by state, and the workers that are alive."""
    counted = Job.objects.exclude(state__in=TERMINAL).values_list("state").annotate(Count("id"))
    states = dict(counted)
    workers = workers_alive()
    return {
        "waiting": states.get(State.QUEUED, 0)
        + states.get(State.DISPATCHED, 0)
        + states.get(State.VALIDATING, 0),
        "running": states.get(State.RUNNING, 0),
        "gating": states.get(State.GATING, 0),
        "paused": states.get(State.PAUSED, 0),
        "workers": workers.count(),
        "busy_workers": workers.filter(busy=True).count(),
    }
