"""Behind an invitation's link: a new person chooses a password, one with a login gives theirs."""

from django import forms
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from webapp.config.faults import Gone, UserFault
from webapp.tenants.invitations import invitation_accept, invitation_resolve
from webapp.tenants.models import Invitation, User


class NewPasswordForm(forms.Form):
    password = forms.CharField(
        label="Choose a password",
        strip=False,
        help_text="At least 10 characters; a sentence is good.",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password", "autofocus": True}),
    )


class KnownPasswordForm(forms.Form):
    password = forms.CharField(
        label="Your password",
        strip=False,
        help_text="You have a login with this address: join with its password.",
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password", "autofocus": True}),
    )


@never_cache
@require_http_methods(["GET", "POST"])
def join(request: HttpRequest, token: str) -> HttpResponse:
    try:
        response = _joining(request, invitation_resolve(token), token)
    except Gone as fault:
        response = render(request, "dashboard/join.html", {"gone": fault.message}, status=fault.status)
    # The token is in the address. "no-referrer" would send "Origin: null", which the CSRF check refuses.
    response["Referrer-Policy"] = "strict-origin"
    return response


def _joining(request: HttpRequest, invitation: Invitation, token: str) -> HttpResponse:
    has_login = User.objects.filter(email=invitation.email).exists()
    form = (KnownPasswordForm if has_login else NewPasswordForm)(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            membership = invitation_accept(token=token, **form.cleaned_data)
        except Gone:
            raise
        except UserFault as fault:
            form.add_error(fault.param if fault.param in form.fields else None, fault.message)
        else:
            login(request, membership.user)
            return redirect("home")
    status = 200 if request.method == "GET" else 422
    return render(request, "dashboard/join.html", {"form": form, "invitation": invitation}, status=status)
