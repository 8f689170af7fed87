"""Signing up, logging in and out."""

from typing import Any

from django import forms
from django.contrib.auth import login
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from webapp.config.faults import UserFault
from webapp.tenants.accounts import signup, signup_is_open


class SignUpForm(forms.Form):
    email = forms.EmailField(
        label="E-mail", widget=forms.EmailInput(attrs={"autocomplete": "email", "autofocus": True})
    )
    tenant_name = forms.CharField(
        label="Company", max_length=100, widget=forms.TextInput(attrs={"autocomplete": "organization"})
    )
    password = forms.CharField(
        help_text="At least 10 characters; a sentence is good.",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )


class LogInForm(AuthenticationForm):
    error_messages = {
        "invalid_login": "E-mail and password do not belong together. Check both and try again.",
        "inactive": "This account is switched off. Ask the owner of your company.",
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].label = "E-mail"


@require_http_methods(["GET", "POST"])
def sign_up(request: HttpRequest) -> HttpResponse:
    if request.user.is_authenticated:
        return redirect("home")
    form = SignUpForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            membership = signup(**form.cleaned_data)
        except UserFault as fault:
            form.add_error(fault.param if fault.param in form.fields else None, fault.message)
        else:
            login(request, membership.user)
            return redirect("home")
    status = 200 if request.method == "GET" else 422
    return render(
        request, "dashboard/sign_up.html", {"form": form, "is_open": signup_is_open()}, status=status
    )


class LogIn(LoginView):
    template_name = "dashboard/log_in.html"
    authentication_form = LogInForm
    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | {"is_open": signup_is_open()}


class LogOut(LogoutView):
    http_method_names = ["post"]
