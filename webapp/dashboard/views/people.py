"""The company's people, for its owner and admins: counts and states, never what anybody wrote or made."""

from django.db.models import Count, IntegerField, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from webapp.adapters.models import Adapter
from webapp.dashboard.access import manager_page
from webapp.datasets.files import UPLOAD_PURPOSE
from webapp.datasets.models import File
from webapp.jobs.models import TERMINAL, Job, State
from webapp.tenants.models import Membership


@manager_page
@require_GET
def people(request: HttpRequest) -> HttpResponse:
    members = (
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
    return render(request, "dashboard/people.html", {"members": members})


def _count(rows: QuerySet) -> Coalesce:
    """How many of `rows` are the member's: a query of its own each, since joins would multiply one another."""
    theirs = rows.filter(end_user=OuterRef("end_user")).order_by().values("end_user")
    return Coalesce(
        Subquery(theirs.annotate(count=Count("id")).values("count")), 0, output_field=IntegerField()
    )
