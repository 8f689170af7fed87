"""API keys: made (shown once), listed, revoked. Managers' keys act for the company, members' for themselves."""

from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from webapp.config.settings import settings
from webapp.dashboard.access import is_manager, member_page, scope_of
from webapp.tenants.keys import api_key_create, api_key_revoke
from webapp.tenants.models import ApiKey

COMPANY, OWN = "company", "own"


class KeyForm(forms.Form):
    name = forms.CharField(
        label="What is it for?",
        max_length=100,
        widget=forms.TextInput(attrs={"placeholder": "My product's server"}),
    )
    reach = forms.ChoiceField(choices=[(COMPANY, "Company"), (OWN, "Own")], required=False)


@never_cache
@member_page
@require_http_methods(["GET", "POST"])
def keys(request: HttpRequest) -> HttpResponse:
    form = KeyForm(request.POST or None)
    made = None
    if request.method == "POST" and form.is_valid():
        for_company = is_manager(request.membership) and form.cleaned_data["reach"] != OWN
        key, text = api_key_create(
            tenant=request.membership.tenant,
            name=form.cleaned_data["name"].strip(),
            end_user=None if for_company else request.membership.end_user,
            created_by=request.user,
        )
        made = {"key": key, "text": text}
        form = KeyForm()
    context = {
        "form": form,
        "made": made,
        "keys": _keys(request),
        "is_manager": is_manager(request.membership),
        "public_url": settings().public_url,
    }
    return render(request, "dashboard/keys.html", context)


@member_page
@require_POST
def key_revoke(request: HttpRequest, key: UUID) -> HttpResponse:
    found = get_object_or_404(_keys(request), id=key)
    api_key_revoke(key=found)
    messages.success(request, f"The key “{found.name}” is revoked: it is refused from now on.")
    return redirect("keys")


def _keys(request: HttpRequest):
    return (
        scope_of(request)
        .of(ApiKey)
        .filter(revoked_at=None)
        .select_related("end_user")
        .order_by("-created_at")
    )
