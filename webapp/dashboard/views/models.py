"""Models of one's own: versions, which one answers, and removing one."""

from itertools import groupby
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.adapters.adapters import adapter_activate, adapter_deactivate, adapter_delete
from webapp.adapters.models import Adapter
from webapp.adapters.visible import adapters_owned
from webapp.config.faults import UserFault
from webapp.dashboard.access import member_page, scope_of
from webapp.tenants.models import EndUser


@member_page
@require_GET
def models(request: HttpRequest) -> HttpResponse:
    """Grouped by whom they are for, one's own first; each group's versions, the newest on top."""
    own = request.membership.end_user_id
    found = sorted(
        _adapters(request).order_by("-version"),
        key=lambda adapter: (
            adapter.end_user_id != own,
            adapter.end_user_id is None,
            str(adapter.end_user or ""),
        ),
    )
    groups = [
        _group(end_user, list(adapters))
        for end_user, adapters in groupby(found, key=lambda adapter: adapter.end_user)
    ]
    return render(request, "dashboard/models.html", {"groups": groups, "undo": _undo(request, found)})


@member_page
@require_POST
def activate(request: HttpRequest, adapter: UUID) -> HttpResponse:
    found = get_object_or_404(_adapters(request), id=adapter)
    before = found.end_user.active_adapter_id if found.end_user else None
    try:
        adapter_activate(adapter=found)
    except UserFault as fault:
        messages.error(request, fault.message)
        return redirect("models")
    messages.success(request, f"Version {found.version} answers from now on.")
    return _back(before)


@member_page
@require_POST
def deactivate(request: HttpRequest, adapter: UUID) -> HttpResponse:
    """From now on the base model answers for whom the version is for."""
    found = get_object_or_404(_adapters(request), id=adapter)
    adapter_deactivate(adapter=found)
    messages.success(request, "The base model answers from now on.")
    return _back(found.id)


@member_page
@require_http_methods(["GET", "POST"])
def remove(request: HttpRequest, adapter: UUID) -> HttpResponse:
    """A GET asks whether it is meant; a POST removes."""
    found = get_object_or_404(_adapters(request), id=adapter)
    if request.method == "GET":
        return render(request, "dashboard/model_remove.html", {"adapter": found})
    try:
        adapter_delete(adapter=found)
    except UserFault as fault:
        messages.error(request, fault.message)
    else:
        messages.success(request, f"Version {found.version} is deleted.")
    return redirect("models")


def _group(end_user: EndUser | None, adapters: list[Adapter]) -> dict[str, Any]:
    """`active` is the version of these that answers; another may, which is not for the reader to see."""
    active = end_user.active_adapter_id if end_user else None
    return {
        "end_user": end_user,
        "adapters": adapters,
        "active": next((adapter for adapter in adapters if adapter.id == active), None),
        "base_answers": end_user is not None and active is None,
    }


def _adapters(request: HttpRequest):
    return adapters_owned(scope_of(request))


def _back(before: UUID | None) -> HttpResponse:
    """To the list, which then offers to go back to what answered before."""
    query = f"?was={before}" if before else ""
    return redirect(f"{reverse('models')}{query}")


def _undo(request: HttpRequest, adapters: list[Adapter]) -> Adapter | None:
    was = _uuid(request.GET.get("was"))
    before = next((adapter for adapter in adapters if adapter.id == was), None)
    if before is None or before.end_user is None or before.end_user.active_adapter_id == before.id:
        return None
    return before


def _uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text or "")
    except ValueError:
        return None
