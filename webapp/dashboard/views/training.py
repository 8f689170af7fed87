"""Training runs: starting one, watching it, pausing it, cancelling it."""

from collections.abc import Callable
from uuid import UUID

from django import forms
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.adapters.models import BaseModel
from webapp.config.faults import UserFault
from webapp.dashboard.access import member_page, readable_jobs, trainable_files
from webapp.dashboard.findings import findings
from webapp.dashboard.progress import loss_chart
from webapp.datasets.models import File
from webapp.jobs.create import Wishes, job_create
from webapp.jobs.delay import delays_of
from webapp.jobs.lifecycle import job_cancel, job_pause, job_resume
from webapp.jobs.models import TERMINAL, Job, JobEvent
from webapp.jobs.time_left import time_left

#: The part of the model's name that says whose it is, unless the person has a better word.
OWN_SUFFIX = "me"
_PER_PAGE = 25
_SHOWN_EVENTS = 100

METHODS = (
    (
        "direft",
        "DiReFT (recommended)",
        "Adjusts what the model makes of your prompt, layer by layer. The quickest.",
    ),
    (
        "lora",
        "LoRA",
        "Adjusts the model's weights a little. Takes about twice as long, and sometimes learns more.",
    ),
)


class JobForm(forms.Form):
    file = forms.ModelChoiceField(
        File.objects.none(),
        label="Learn from",
        empty_label=None,
        error_messages={"required": "Choose a file."},
    )
    method = forms.ChoiceField(choices=[(key, name) for key, name, _ in METHODS], initial="direft")
    base = forms.ModelChoiceField(
        BaseModel.objects.none(),
        label="Base model",
        empty_label=None,
        help_text="The first is the one that answers now. A training on another waits at its end until that one does.",
    )
    suffix = forms.RegexField(
        r"^[\w.-]{1,18}$",
        label="Name",
        required=False,
        help_text="Optional: letters, digits, dots and dashes. It becomes part of the model's name.",
        error_messages={"invalid": "Use up to 18 letters, digits, dots and dashes."},
    )
    n_epochs = forms.IntegerField(
        label="Passes over the data",
        required=False,
        min_value=1,
        max_value=50,
        help_text="Leave empty to let Attune choose. More passes learn more by heart.",
    )
    position = forms.ChoiceField(
        label="Where the adapter acts",
        choices=[
            ("prefill", "On the prompt alone (fast, the default)"),
            ("all", "On every token (slower to serve)"),
        ],
        required=False,
    )

    def __init__(self, request: HttpRequest, data: object = None) -> None:
        super().__init__(data, initial={"file": request.GET.get("file"), "base": _default_base()})
        self.fields["file"].queryset = trainable_files(request).order_by("-created_at")
        self.fields["file"].label_from_instance = _file_label
        wanted = self["file"].value()
        self.lacks_file = bool(wanted) and not self._takes(wanted)
        if self.lacks_file:
            # Without an empty choice the browser would choose the first file in its place, unasked.
            self.fields["file"].empty_label = "Choose a file"
        self.fields["base"].queryset = BaseModel.objects.order_by("-is_default", "name")
        for name in self.errors if data else ():
            self.fields[name].widget.attrs["aria-invalid"] = "true"

    def _takes(self, file: str) -> bool:
        try:
            self.fields["file"].clean(file)
        except forms.ValidationError:
            return False
        return True


@member_page
@require_GET
def jobs(request: HttpRequest) -> HttpResponse:
    found = Paginator(_jobs(request).order_by("-created_at"), _PER_PAGE).get_page(request.GET.get("page"))
    return render(request, "dashboard/jobs.html", {"jobs": found})


@member_page
@require_http_methods(["GET", "POST"])
def job_new(request: HttpRequest) -> HttpResponse:
    """The form, with sensible choices made; a POST starts the training for the person's own model."""
    form = JobForm(request, request.POST or None)
    if request.method == "POST" and form.is_valid():
        wanted = form.cleaned_data
        wishes = Wishes(
            type=wanted["file"].job_type,
            method=wanted["method"],
            position=wanted["position"] or "prefill",
            n_epochs=wanted["n_epochs"] or "auto",
        )
        try:
            job = job_create(
                tenant=request.membership.tenant,
                base=wanted["base"],
                training_file=wanted["file"],
                end_user=request.membership.end_user,
                wishes=wishes,
                suffix=wanted["suffix"] or OWN_SUFFIX,
            )
        except UserFault as fault:
            form.add_error(None, fault.message)
        else:
            return redirect("job", job=job.id)
    context = {
        "form": form,
        "methods": METHODS,
        "chosen_method": form.data.get("method", "direft"),
        "has_files": form.fields["file"].queryset.exists(),
        "bases": form.fields["base"].queryset,
    }
    return render(request, "dashboard/job_new.html", context, status=422 if form.errors else 200)


@member_page
@require_GET
def job(request: HttpRequest, job: UUID) -> HttpResponse:
    """One run. htmx asks for the live part alone, every two seconds until the end."""
    found = get_object_or_404(_jobs(request), id=job)
    events = list(JobEvent.objects.filter(job=found).order_by("id"))
    context = {
        "job": found,
        "is_over": found.state in TERMINAL,
        "chart": loss_chart(events, found.total_steps),
        "left": time_left(found),
        "delay": delays_of([found]).get(found.id),
        "findings": findings(found.report),
        "events": events[: -_SHOWN_EVENTS - 1 : -1],
        "adapter": getattr(found, "adapter", None),
        "took": found.finished_at - found.started_at if found.finished_at and found.started_at else None,
    }
    template = "dashboard/components/job_live.html" if request.htmx else "dashboard/job.html"
    return render(request, template, context)


@member_page
@require_POST
def job_stop(request: HttpRequest, job: UUID) -> HttpResponse:
    return _changed(request, job, job_cancel, "The training is cancelled.")


@member_page
@require_POST
def job_hold(request: HttpRequest, job: UUID) -> HttpResponse:
    return _changed(request, job, job_pause, "The training is paused. What it has learned so far is kept.")


@member_page
@require_POST
def job_go_on(request: HttpRequest, job: UUID) -> HttpResponse:
    return _changed(request, job, job_resume, "The training goes on when a trainer is free.")


def _changed(request: HttpRequest, job: UUID, verb: Callable[..., Job], told: str) -> HttpResponse:
    found = get_object_or_404(_jobs(request), id=job)
    try:
        verb(job=found)
    except UserFault as fault:
        messages.error(request, fault.message)
    else:
        messages.success(request, told)
    return redirect("job", job=job)


def _jobs(request: HttpRequest):
    return readable_jobs(request).select_related(
        "tenant__plan", "base", "training_file", "end_user", "adapter"
    )


def _file_label(file: File) -> str:
    whose = "" if file.uploaded_by_id else ", the company's"
    what = "pairs" if file.job_type == "dpo" else "examples"
    return f"{file.filename} ({file.examples_count} {what}{whose})"


def _default_base() -> BaseModel | None:
    return BaseModel.objects.filter(is_default=True).first()
