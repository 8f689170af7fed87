"""Two pages of numbers: the installation's for staff, a company's own for its owner and admins."""

from typing import Any

from django.db.models import Case, F, Value, When
from django.db.models.functions import Coalesce, Concat
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from webapp.dashboard.access import manager_page, to_login
from webapp.usage import reports
from webapp.usage.engine_metrics import EngineMetrics, engine_metrics

_TOP = 20
#: Seconds between two readings below which a rate says nothing.
_SHORTEST = 1.0
_last_reading: EngineMetrics | None = None


@require_GET
def staff_usage(request: HttpRequest) -> HttpResponse:
    """Live numbers of the whole installation. `?window=` chooses the stretch; htmx asks for the live part alone."""
    if not request.user.is_authenticated:
        return to_login(request)
    if not request.user.is_staff:
        raise Http404
    window = reports.window(request.GET.get("window"), "1h")
    rows = reports.chat_rows(window)
    engine = engine_metrics()
    context = {
        "window": window,
        "windows": reports.WINDOWS,
        "engine": engine,
        "engine_rate": _rate(engine),
        "totals": reports.totals(rows, window),
        "queue": reports.training_queue(),
        "tenants": reports.by(rows, tenant_key="tenant_id", name="tenant__name")[:_TOP],
        "end_users": _end_users(rows),
        "adapters": _adapters(rows),
    }
    template = "usage/staff_live.html" if request.htmx else "usage/staff.html"
    return render(request, template, context)


@manager_page
@require_GET
def usage(request: HttpRequest) -> HttpResponse:
    """A company's own usage: counts, no content."""
    window = reports.window(request.GET.get("window"), "30d")
    rows = reports.chat_rows(window, request.membership.tenant)
    context = {
        "window": window,
        "windows": reports.WINDOWS,
        "totals": reports.totals(rows, window),
        "days": reports.by_day(rows),
        "end_users": _end_users(rows),
        "adapters": _adapters(rows),
    }
    return render(request, "usage/usage.html", context)


def _end_users(rows: Any) -> Any:
    """People of the company by their address, its own end users by the id it gave them."""
    named = rows.exclude(end_user=None).annotate(
        end_user_name=Coalesce("end_user__membership__user__email", "end_user__external_id")
    )
    return reports.by(named, end_user_key="end_user_id", name="end_user_name", tenant_name="tenant__name")[
        :_TOP
    ]


def _adapters(rows: Any) -> Any:
    """By name; those that a person trained for themselves, under the person: the name may be their own words."""
    person = "adapter__job__training_file__uploaded_by"
    named = rows.annotate(
        model_name=Case(
            When(**{f"{person}__isnull": False}, then=Concat(f"{person}__email", Value(", own models"))),
            default=F("adapter__public_name"),
        )
    )
    return reports.by(named, name="model_name", base_name="base", tenant_name="tenant__name")[:_TOP]


def _rate(now: EngineMetrics | None) -> float | None:
    """Tokens a second that the engine generated since the page was last asked for."""
    global _last_reading
    before = _last_reading
    if now is None:
        return None
    if before is not None and now.read_at - before.read_at < _SHORTEST:
        return None
    _last_reading = now
    # A smaller count than before: the engine was started anew.
    if before is None or now.generated_tokens < before.generated_tokens:
        return None
    return (now.generated_tokens - before.generated_tokens) / (now.read_at - before.read_at)
