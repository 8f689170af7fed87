"""The company's people, for its owner and admins: counts and states, never what anybody wrote or made.

And who is invited: a link to pass on, shown once.
"""

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.db.models import Count, IntegerField, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from webapp.adapters.models import Adapter
from webapp.config.faults import UserFault
from webapp.config.settings import settings
from webapp.dashboard.access import manager_page, scope_of
from webapp.datasets.files import UPLOAD_PURPOSE
from webapp.datasets.models import File
from webapp.jobs.models import TERMINAL, Job, State
from webapp.tenants.invitations import (
    invitation_create,
    invitation_withdraw,
    roles_invitable,
    still_open,
)
from webapp.tenants.models import Invitation, Membership


class InviteForm(forms.Form):
    email = forms.EmailField(label="E-mail", widget=forms.EmailInput(attrs={"autocomplete": "off"}))
    role = forms.ChoiceField()

    def __init__(self, *args: Any, inviter: Membership, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["role"].choices = [(role.value, role.label) for role in roles_invitable(inviter)]


@never_cache
@manager_page
@require_http_methods(["GET", "POST"])
def people(request: HttpRequest) -> HttpResponse:
    form = InviteForm(request.POST or None, inviter=request.membership)
    made = None
    if request.method == "POST" and form.is_valid():
        try:
            invitation, token = invitation_create(inviter=request.membership, **form.cleaned_data)
        except UserFault as fault:
            form.add_error(fault.param, fault.message)
        else:
            link = settings().public_url + reverse("join", args=[token])
            made = {"invitation": invitation, "link": link}
            form = InviteForm(inviter=request.membership)
    context = {
        "form": form,
        "made": made,
        "members": _members(request),
        "invitations": _invitations(request).order_by("expires_at"),
    }
    status = 200 if request.method == "GET" or made else 422
    return render(request, "dashboard/people.html", context, status=status)


@manager_page
@require_POST
def invitation_remove(request: HttpRequest, invitation: UUID) -> HttpResponse:
    found = get_object_or_404(_invitations(request), id=invitation)
    invitation_withdraw(invitation=found)
    messages.success(request, f"The invitation of {found.email} is withdrawn: its link opens nothing now.")
    return redirect("people")


def _invitations(request: HttpRequest) -> QuerySet[Invitation]:
    return still_open(scope_of(request).of(Invitation))


def _members(request: HttpRequest) -> QuerySet[Membership]:
    return (
        Membership.objects.filter(tenant=request.membership.tenant)
        .select_related("user", "end_user")
        .annotate(
            files=_count(File.objects.filter(deleted_at=None, purpose=UPLOAD_PURPOSE)),
            jobs=_count(Job.objects.all()),
            unfinished=_count(Job.objects.exclude(state__in=TERMINAL)),
            failed=_count(Job.objects.filter(state=State.FAILED)),
            models=_count(Adapter.objects.filter(deleted_at=None)),
        )
        .order_by("created_at")
    )


def _count(rows: QuerySet) -> Coalesce:
    """How many of `rows` are the member's: a query of its own each, since joins would multiply one another."""
    theirs = rows.filter(end_user=OuterRef("end_user")).order_by().values("end_user")
    return Coalesce(
        Subquery(theirs.annotate(count=Count("id")).values("count")), 0, output_field=IntegerField()
    )
