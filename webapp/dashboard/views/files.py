"""Uploads: a drop zone, the list, and each file's report, row by row."""

from uuid import UUID

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.config.faults import UserFault
from webapp.config.settings import settings
from webapp.dashboard.access import member_page, own_scope, readable_files, trainable_files
from webapp.datasets.files import file_create, file_delete, file_reread
from webapp.datasets.intake import UPLOAD_PURPOSE
from webapp.datasets.preview import examples_preview
from webapp.datasets.readers import may_read_file
from webapp.datasets.sensitive import NAMES
from webapp.datasets.upload import Asked, Voice

_PER_PAGE = 25
_VOICES: dict[Voice, str] = {
    "me": "Learn to write like me",
    "assistant": "Learn to answer like the assistant",
}


@member_page
@require_http_methods(["GET", "POST"])
def files(request: HttpRequest) -> HttpResponse:
    """The list and the drop zone; a POST takes one file and shows its report."""
    problem = None
    if request.method == "POST":
        upload = request.FILES.get("file")
        if upload is None:
            problem = "Choose a file first."
        else:
            try:
                file = file_create(
                    tenant=request.membership.tenant,
                    filename=upload.name or "upload",
                    stream=upload,
                    uploaded_by=request.user,
                    end_user=request.membership.end_user,
                    asked=Asked(mask="mask" in request.POST),
                )
            except UserFault as fault:
                problem = fault.message
            else:
                return redirect("file", file=file.id)
    found = Paginator(_files(request).order_by("-created_at"), _PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "files": found,
        "trainable": set(
            trainable_files(request).filter(id__in=[each.id for each in found]).values_list("id", flat=True)
        ),
        "has_companys": _files(request).filter(uploaded_by=None).exists(),
        "problem": problem,
        "max_bytes": settings().max_upload_bytes,
    }
    return render(request, "dashboard/files.html", context, status=422 if problem else 200)


@member_page
@require_GET
def file(request: HttpRequest, file: UUID) -> HttpResponse:
    found = get_object_or_404(_files(request), id=file)
    context = {
        "file": found,
        "is_ready": trainable_files(request).filter(id=found.id).exists(),
        "may_read": may_read_file(scope=own_scope(request), file=found),
        "voices": [
            (said, voice, found.report.get("voices", {}).get(voice)) for voice, said in _VOICES.items()
        ],
        "sensitive": [each | {"name": NAMES[each["kind"]][1]} for each in found.report.get("sensitive", ())],
    }
    return render(request, "dashboard/file.html", context)


@member_page
@require_GET
def file_preview(request: HttpRequest, file: UUID) -> HttpResponse:
    """A part of the file's page, because the engine is asked for it: which tokens are learned."""
    found = get_object_or_404(trainable_files(request), id=file)
    if not may_read_file(scope=own_scope(request), file=found):
        raise Http404
    try:
        context = {"examples": examples_preview(found)}
    except UserFault as fault:
        context = {"problem": fault.message}
    return render(request, "dashboard/components/preview.html", context)


@member_page
@require_POST
def file_reread_as(request: HttpRequest, file: UUID) -> HttpResponse:
    """What was not said at the upload: who 'me' is in a chat export, whose voice to learn, what to mask."""
    found = get_object_or_404(_files(request), id=file)
    voice = next((voice for voice in _VOICES if voice == request.POST.get("voice")), None)
    try:
        asked = Asked(me=request.POST.get("me") or None, voice=voice, mask="mask" in request.POST)
        again = file_reread(scope=own_scope(request), file=found, asked=asked)
    except UserFault as fault:
        messages.error(request, fault.message)
        return redirect("file", file=file)
    return redirect("file", file=again.id)


@member_page
@require_POST
def file_remove(request: HttpRequest, file: UUID) -> HttpResponse:
    found = get_object_or_404(_files(request), id=file)
    try:
        file_delete(file=found)
    except UserFault as fault:
        messages.error(request, fault.message)
        return redirect("file", file=file)
    messages.success(
        request, "The file is deleted. Models that were trained on it stay until you delete them."
    )
    return redirect("files")


def _files(request: HttpRequest):
    return readable_files(request).filter(purpose=UPLOAD_PURPOSE).select_related("end_user")
