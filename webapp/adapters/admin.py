"""The catalogue and the adapters in Django's admin."""

from django.contrib import admin

from webapp.adapters.models import Adapter, BaseModel, Forgetting
from webapp.dashboard.admin import ReadMostly


@admin.register(BaseModel)
class BaseModelAdmin(ReadMostly):
    list_display = ("name", "architecture", "context_length", "license", "is_default", "created_at")
    list_filter = ("license", "is_default")
    search_fields = ("name", "source", "digest")
    #: The sentence that is shown wherever the model answers.
    changeable = ("label",)


@admin.register(Adapter)
class AdapterAdmin(ReadMostly):
    list_display = (
        "name",
        "tenant",
        "end_user",
        "version",
        "method",
        "position",
        "rank",
        "created_at",
        "deleted_at",
    )
    list_filter = ("method", "position", "base", "created_at")
    search_fields = ("name", "digest", "tenant__name", "end_user__external_id")
    #: A part of it may be a person's own words.
    exclude = ("public_name",)
    list_select_related = ("tenant", "end_user")


@admin.register(Forgetting)
class ForgettingAdmin(ReadMostly):
    list_display = ("name", "not_before")
    search_fields = ("name",)
