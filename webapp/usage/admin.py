"""Usage rows in Django's admin."""

from django.contrib import admin

from webapp.dashboard.admin import ReadMostly
from webapp.usage.models import UsageRow


@admin.register(UsageRow)
class UsageRowAdmin(ReadMostly):
    list_display = (
        "created_at",
        "kind",
        "tenant",
        "end_user",
        "adapter",
        "base",
        "status",
        "input_tokens",
        "output_tokens",
        "first_token_seconds",
        "seconds",
    )
    list_filter = ("kind", "status", "base", "created_at")
    search_fields = ("request_id", "tenant__name", "end_user__external_id")
    list_select_related = ("tenant", "end_user", "adapter")
    date_hierarchy = "created_at"
