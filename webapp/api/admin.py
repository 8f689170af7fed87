"""Remembered answers to repeated requests in Django's admin, without the answers."""

from django.contrib import admin

from webapp.api.models import IdempotentRequest
from webapp.dashboard.admin import ReadMostly


@admin.register(IdempotentRequest)
class IdempotentRequestAdmin(ReadMostly):
    list_display = ("id", "tenant", "created_at")
    list_select_related = ("tenant",)
    exclude = ("answer",)
