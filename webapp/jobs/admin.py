"""Training runs and trainers in Django's admin. Tokens are not shown, not even their HMACs."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from webapp.dashboard.admin import ReadMostly
from webapp.jobs.lifecycle import QUARANTINED
from webapp.jobs.models import Job, JobEvent, JobUpload, Outbox, Share, Worker


class Quarantined(admin.SimpleListFilter):
    """Jobs that were given up after their third bad attempt: something in them, or in the trainers, is poison."""

    title = parameter_name = "quarantined"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> list[tuple[str, str]]:
        return [("yes", "Yes"), ("no", "No")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        match self.value():
            case "yes":
                return queryset.filter(error_code=QUARANTINED)
            case "no":
                return queryset.exclude(error_code=QUARANTINED)
        return queryset


@admin.register(Job)
class JobAdmin(ReadMostly):
    list_display = (
        "public_id",
        "tenant",
        "end_user",
        "state",
        "quarantined",
        "failed_attempts",
        "epoch",
        "step",
        "total_steps",
        "error_code",
        "created_at",
        "finished_at",
    )
    list_filter = (Quarantined, "state", "error_code", "base", "created_at")
    search_fields = ("id", "tenant__name", "end_user__external_id", "error_code")
    list_select_related = ("tenant", "end_user")
    exclude = ("dispatch_token", "token", "metadata", "requested", "suffix")

    @admin.display(boolean=True)
    def quarantined(self, job: Job) -> bool:
        return job.error_code == QUARANTINED


@admin.register(JobEvent)
class JobEventAdmin(ReadMostly):
    list_display = ("id", "job", "level", "message", "created_at")
    list_filter = ("level", "created_at")
    search_fields = ("job__id",)
    list_select_related = ("job",)


@admin.register(JobUpload)
class JobUploadAdmin(ReadMostly):
    list_display = ("id", "job", "sha256")
    search_fields = ("job__id", "sha256")


@admin.register(Outbox)
class OutboxAdmin(ReadMostly):
    list_display = ("job", "tenant", "created_at")
    list_select_related = ("job", "tenant")


@admin.register(Share)
class ShareAdmin(ReadMostly):
    list_display = ("tenant", "served", "clock")
    list_select_related = ("tenant",)
    search_fields = ("tenant__name",)


@admin.register(Worker)
class WorkerAdmin(ReadMostly):
    list_display = ("id", "device", "busy", "bases", "last_seen")
    list_filter = ("busy",)
