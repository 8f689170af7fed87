"""What templates need and Django lacks: the navigation, states in words, sizes and durations."""

from datetime import timedelta
from typing import Any, NamedTuple

from django import template
from django.urls import reverse

from webapp.dashboard.access import is_manager, membership_of
from webapp.datasets.models import FileStatus
from webapp.jobs.models import State

register = template.Library()


class Badge(NamedTuple):
    word: str
    kind: str


_JOB_STATES = {
    State.VALIDATING: Badge("Checking the file", "busy"),
    State.QUEUED: Badge("Waiting its turn", "busy"),
    State.DISPATCHED: Badge("Starting", "busy"),
    State.RUNNING: Badge("Training", "busy"),
    State.PAUSED: Badge("Paused", "warn"),
    State.GATING: Badge("Last checks", "busy"),
    State.SUCCEEDED: Badge("Done", "good"),
    State.FAILED: Badge("Failed", "bad"),
    State.CANCELLED: Badge("Cancelled", ""),
}
_FILE_STATES = {
    FileStatus.PROCESSED: Badge("Ready", "good"),
    FileStatus.ERROR: Badge("Cannot be used", "bad"),
}
_METHODS = {"direft": "DiReFT", "lora": "LoRA", "loreft": "LoReFT"}

_MEMBER_PAGES = (
    ("Home", "home"),
    ("Data", "files"),
    ("Training", "jobs"),
    ("Models", "models"),
    ("Chat", "chat"),
    ("API keys", "keys"),
)
_MANAGER_PAGES = (("People", "people"), ("Usage", "usage"))


@register.simple_tag(takes_context=True)
def navigation(context: dict[str, Any]) -> list[dict[str, Any]]:
    """The pages that this person has, with the present one marked."""
    request = context.get("request")
    if request is None or not hasattr(request, "user"):
        return []
    membership = getattr(request, "membership", None) or membership_of(request)
    pages = list(_MEMBER_PAGES) if membership else []
    if membership and is_manager(membership):
        pages += _MANAGER_PAGES
    if request.user.is_staff:
        pages.append(("Installation", "staff_usage"))
    items = [{"name": name, "url": reverse(route)} for name, route in pages]
    for item in items:
        item["current"] = request.path == item["url"] or (
            item["url"] != "/" and request.path.startswith(item["url"] + "/")
        )
    return items


@register.filter
def job_badge(job: Any) -> Badge:
    return _JOB_STATES[State(job.state)]


@register.filter
def file_badge(file: Any) -> Badge:
    return _FILE_STATES[FileStatus(file.status)]


@register.filter
def method_name(method: str) -> str:
    return _METHODS.get(method, method)


@register.filter
def duration(seconds: float | timedelta | None) -> str:
    """`42 s`, `3 min 5 s`, `2 h 10 min`."""
    if seconds is None:
        return "–"
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


@register.filter
def milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


@register.filter
def thousands(number: float | None) -> str:
    return "–" if number is None else f"{number:,.0f}".replace(",", "\u202f")


@register.filter
def decimals(number: float | None, places: int = 1) -> str:
    return "–" if number is None else f"{number:.{places}f}"


@register.filter
def percent(share: float) -> str:
    return f"{share:.0%}"
