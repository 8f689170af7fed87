"""Uploads in Django's admin: counts and states. Names and reports of files are their owners'."""

from django.contrib import admin

from webapp.dashboard.admin import ReadMostly
from webapp.datasets.models import File, ObjectRemoval


@admin.register(File)
class FileAdmin(ReadMostly):
    list_display = (
        "public_id",
        "tenant",
        "purpose",
        "status",
        "format",
        "size",
        "conversations_count",
        "created_at",
        "deleted_at",
    )
    list_filter = ("status", "purpose", "format", "created_at")
    search_fields = ("id", "tenant__name")
    list_select_related = ("tenant",)
    exclude = ("filename", "report")


@admin.register(ObjectRemoval)
class ObjectRemovalAdmin(ReadMostly):
    list_display = ("id", "key", "not_before")
    search_fields = ("key",)
