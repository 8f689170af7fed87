"""Who may see what on a page. Members see their own things; owners and admins the company's too, members' never.

What a person uploaded, and so what was trained on it, is theirs alone, whatever the role of whoever looks: of a
member's things the owner sees counts and states (people.py), never a file's name, a report or a chat.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from webapp.config.faults import NotFound
from webapp.datasets.intake import UPLOAD_PURPOSE
from webapp.datasets.models import File, FileStatus
from webapp.datasets.readers import readable_by
from webapp.jobs.models import Job
from webapp.tenants.models import Membership, Role
from webapp.tenants.scope import Scope, scope_of_member

View = Callable[..., HttpResponse]


def membership_of(request: HttpRequest) -> Membership | None:
    if not request.user.is_authenticated:
        return None
    return Membership.objects.select_related("tenant", "user", "end_user").filter(user=request.user).first()


def member_page(view: View) -> View:
    """For people of a company: sets `request.membership`; what does not exist for them is a 404."""

    @wraps(view)
    def page(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_authenticated:
            return to_login(request)
        membership = membership_of(request)
        if membership is None:
            # Staff of the installation who belong to no company have one page of their own.
            if request.user.is_staff:
                return redirect("staff_usage")
            raise Http404
        request.membership = membership
        try:
            return view(request, *args, **kwargs)
        except NotFound:
            raise Http404 from None

    return page


def manager_page(view: View) -> View:
    """For owners and admins; to others the page is not there."""

    @wraps(view)
    def page(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not is_manager(request.membership):
            raise Http404
        return view(request, *args, **kwargs)

    return member_page(page)


def to_login(request: HttpRequest) -> HttpResponse:
    target = request.get_full_path() if request.method == "GET" else "/"
    return redirect(f"{reverse('login')}?{urlencode({'next': target})}")


def is_manager(membership: Membership) -> bool:
    return membership.role in (Role.OWNER, Role.ADMIN)


def scope_of(request: HttpRequest) -> Scope:
    return scope_of_member(request.membership)


def readable_files(request: HttpRequest) -> QuerySet[File]:
    """Those that may be opened: own ones, and the company's for its managers."""
    scope = scope_of(request)
    return scope.of(File).filter(readable_by(scope), deleted_at=None)


def trainable_files(request: HttpRequest) -> QuerySet[File]:
    """Of those, what a training can be started on: who may read a file may train on it, as in the API."""
    return readable_files(request).filter(status=FileStatus.PROCESSED, purpose=UPLOAD_PURPOSE)


def readable_jobs(request: HttpRequest) -> QuerySet[Job]:
    """Likewise, by what they train on."""
    scope = scope_of(request)
    return scope.of(Job).filter(readable_by(scope, "training_file__"))


def own_scope(request: HttpRequest) -> Scope:
    """Acts for the person alone, whatever their role: what they upload and train here is theirs."""
    membership = request.membership
    return Scope(tenant=membership.tenant, end_user=membership.end_user, user=membership.user)
