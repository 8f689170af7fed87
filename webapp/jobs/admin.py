"""Training runs and trainers in Django's admin. Tokens are not shown, not even their HMACs."""

from django.contrib import admin

from webapp.dashboard.admin import ReadMostly
from webapp.jobs.models import Job, JobEvent, JobUpload, Outbox, Worker


@admin.register(Job)
class JobAdmin(ReadMostly):
    list_display = (
        "public_id",
        "tenant",
        "end_user",
        "state",
        "epoch",
        "step",
        "total_steps",
        "error_code",
        "created_at",
        "finished_at",
    )
    list_filter = ("state", "error_code", "base", "created_at")
    search_fields = ("id", "tenant__name", "end_user__external_id", "error_code")
    list_select_related = ("tenant", "end_user")
    exclude = ("dispatch_token", "token", "metadata", "requested", "suffix")


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


@admin.register(Worker)
class WorkerAdmin(ReadMostly):
    list_display = ("id", "device", "busy", "bases", "last_seen")
    list_filter = ("busy",)
