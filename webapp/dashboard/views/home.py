"""The first page: three steps to a model of one's own, and where one is."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from webapp.adapters.models import Adapter
from webapp.dashboard.access import member_page, own_scope, readable_jobs
from webapp.datasets.models import File, FileStatus
from webapp.jobs.models import TERMINAL, Job, State


@member_page
@require_GET
def home(request: HttpRequest) -> HttpResponse:
    own = own_scope(request)
    files = own.of(File).filter(deleted_at=None)
    has_file = files.filter(status=FileStatus.PROCESSED).exists()
    has_model = own.of(Adapter).filter(deleted_at=None, job__state=State.SUCCEEDED).exists()
    running = own.of(Job).exclude(state__in=TERMINAL).order_by("-created_at").first()
    jobs = readable_jobs(request).select_related("base", "end_user", "training_file")
    context = {
        "has_file": has_file,
        "has_model": has_model,
        "running": running,
        "next": "chat" if has_model else "train" if has_file else "upload",
        "jobs": jobs.order_by("-created_at")[:5],
    }
    return render(request, "dashboard/home.html", context)
