"""What all of the admin's pages have in common: rows are looked at, seldom changed, never made or deleted here."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

admin.site.site_header = admin.site.site_title = "Attune"
admin.site.index_title = "Records"
admin.site.site_url = "/staff/usage"


class ReadMostly(admin.ModelAdmin):
    """Shows every field but `exclude`; only those in `changeable` can be edited.

    Rows are made and removed by the verbs beside the models, which keep storage and states right.
    """

    changeable: tuple[str, ...] = ()
    list_per_page = 50
    show_full_result_count = False

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        hidden = set(self.exclude or ()) | set(self.changeable)
        return [field.name for field in self.model._meta.fields if field.name not in hidden]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        # A form without a field that can be changed is a page to look at.
        return bool(self.changeable) and super().has_change_permission(request, obj)
