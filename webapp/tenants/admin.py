"""Tenants, people and keys in Django's admin. What authenticates (passwords, HMACs) is not shown."""

from typing import Any

from django.contrib import admin
from django.contrib.auth.models import Group
from django.http import HttpRequest

from webapp.dashboard.admin import ReadMostly
from webapp.tenants.models import ApiKey, EndUser, Invitation, Membership, Plan, Tenant, User

admin.site.unregister(Group)


@admin.register(User)
class UserAdmin(ReadMostly):
    list_display = ("email", "is_active", "is_staff", "is_superuser", "date_joined", "last_login")
    list_filter = ("is_active", "is_staff", "is_superuser")
    search_fields = ("email",)
    ordering = ("-date_joined",)
    exclude = ("password", "groups", "user_permissions")
    #: Switching a login off, and making someone staff, is what support has to do.
    changeable = ("is_active", "is_staff", "is_superuser")


@admin.register(Plan)
class PlanAdmin(ReadMostly):
    """Plans alone are made here: no verb beside the models has more to do than to write the row."""

    list_display = ("name", "weight", "running_jobs")
    ordering = ("name",)
    changeable = ("weight", "running_jobs")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return super().get_readonly_fields(request, obj) if obj else []

    def has_add_permission(self, request: HttpRequest) -> bool:
        return admin.ModelAdmin.has_add_permission(self, request)


@admin.register(Tenant)
class TenantAdmin(ReadMostly):
    list_display = ("name", "plan", "id", "created_at")
    list_filter = ("plan",)
    list_select_related = ("plan",)
    search_fields = ("name", "id")
    ordering = ("-created_at",)
    changeable = ("name", "plan")


@admin.register(EndUser)
class EndUserAdmin(ReadMostly):
    list_display = ("external_id", "tenant", "active_adapter", "created_at")
    list_filter = ("created_at",)
    search_fields = ("external_id", "tenant__name")
    list_select_related = ("tenant", "active_adapter")


@admin.register(Membership)
class MembershipAdmin(ReadMostly):
    list_display = ("user", "tenant", "role", "created_at")
    list_filter = ("role",)
    search_fields = ("user__email", "tenant__name")
    list_select_related = ("user", "tenant")
    changeable = ("role",)


@admin.register(Invitation)
class InvitationAdmin(ReadMostly):
    list_display = ("email", "tenant", "role", "invited_by", "expires_at")
    list_filter = ("role",)
    search_fields = ("email", "tenant__name")
    list_select_related = ("tenant", "invited_by__user")
    exclude = ("hmac",)


@admin.register(ApiKey)
class ApiKeyAdmin(ReadMostly):
    list_display = ("name", "prefix", "tenant", "end_user", "created_at", "last_used_at", "revoked_at")
    list_filter = ("revoked_at", "created_at")
    search_fields = ("name", "prefix", "tenant__name")
    list_select_related = ("tenant", "end_user")
    exclude = ("hmac",)
    #: Revoking a leaked key cannot wait for its owner.
    changeable = ("revoked_at",)
