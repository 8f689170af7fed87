"""API keys: made (shown once), listed, revoked.

Managers' keys act for the company, for one of its end users or for the manager alone, members' for themselves.
"""

from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from webapp.config.faults import UserFault
from webapp.config.settings import settings
from webapp.dashboard.access import is_manager, member_page, scope_of
from webapp.tenants.keys import api_key_create, api_key_revoke
from webapp.tenants.models import ApiKey, EndUser
from webapp.tenants.scope import end_user_for

COMPANY, USER, OWN = "company", "user", "own"


class KeyForm(forms.Form):
    name = forms.CharField(
        label="What is it for?",
        max_length=100,
        widget=forms.TextInput(attrs={"placeholder": "My product's server"}),
    )
    reach = forms.ChoiceField(
        choices=[(COMPANY, "Company"), (USER, "End user"), (OWN, "Own")], initial=COMPANY, required=False
    )
    user = forms.CharField(
        label="Which end user?",
        help_text="Their id, as your product sends it in “user”. One that is new here is added.",
        max_length=200,
        required=False,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )


@never_cache
@member_page
@require_http_methods(["GET", "POST"])
def keys(request: HttpRequest) -> HttpResponse:
    form = KeyForm(request.POST or None)
    made = None
    if request.method == "POST" and form.is_valid():
        try:
            key, text = api_key_create(
                tenant=request.membership.tenant,
                name=form.cleaned_data["name"].strip(),
                end_user=_acting_for(request, form),
                created_by=request.user,
            )
        except UserFault as fault:
            form.add_error(fault.param, fault.message)
        else:
            made = {"key": key, "text": text}
            form = KeyForm()
    context = {
        "form": form,
        "made": made,
        "keys": _keys(request),
        "is_manager": is_manager(request.membership),
        "public_url": settings().public_url,
    }
    status = 200 if request.method == "GET" or made else 422
    return render(request, "dashboard/keys.html", context, status=status)


@member_page
@require_POST
def key_revoke(request: HttpRequest, key: UUID) -> HttpResponse:
    found = get_object_or_404(_keys(request), id=key)
    api_key_revoke(key=found)
    messages.success(request, f"The key “{found.name}” is revoked: it is refused from now on.")
    return redirect("keys")


def _acting_for(request: HttpRequest, form: KeyForm) -> EndUser | None:
    """For whom the key is; None: the company. Raises BadRequest and NotAllowed as a job's `metadata.user` does."""
    reach = form.cleaned_data["reach"]
    if not is_manager(request.membership) or reach == OWN:
        return request.membership.end_user
    return end_user_for(scope_of(request), form.cleaned_data["user"] if reach == USER else None, param="user")


def _keys(request: HttpRequest):
    return (
        scope_of(request)
        .of(ApiKey)
        .filter(revoked_at=None)
        .select_related("end_user__membership")
        .order_by("-created_at")
    )
