"""The company's people, for its owner and admins: counts and states, never what anybody wrote or made."""

from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from webapp.dashboard.access import manager_page
from webapp.jobs.models import TERMINAL, State
from webapp.tenants.models import Membership


@manager_page
@require_GET
def people(request: HttpRequest) -> HttpResponse:
    files = Count("end_user__files", filter=Q(end_user__files__deleted_at=None), distinct=True)
    jobs = Count("end_user__jobs", distinct=True)
    unfinished = Count("end_user__jobs", filter=~Q(end_user__jobs__state__in=TERMINAL), distinct=True)
    failed = Count("end_user__jobs", filter=Q(end_user__jobs__state=State.FAILED), distinct=True)
    models = Count("end_user__adapters", filter=Q(end_user__adapters__deleted_at=None), distinct=True)
    members = (
        Membership.objects.filter(tenant=request.membership.tenant)
        .select_related("user", "end_user")
        .annotate(files=files, jobs=jobs, unfinished=unfinished, failed=failed, models=models)
        .order_by("created_at")
    )
    return render(request, "dashboard/people.html", {"members": members})
