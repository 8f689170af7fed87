"""Every address of the web process."""

from importlib.util import find_spec

from django.contrib import admin
from django.urls import include, path

from webapp.config.health import healthz

handler404 = "webapp.api.errors.page_not_found"
handler500 = "webapp.api.errors.server_error"
handler403 = "webapp.api.errors.permission_denied"
handler400 = "webapp.api.errors.bad_request"

urlpatterns = [
    path("healthz", healthz),
    path("admin/", admin.site.urls),
    *(
        path("", include(module))
        for module in (
            "webapp.api.urls",
            "webapp.jobs.urls",
            "webapp.chat.urls",
            "webapp.usage.urls",
            "webapp.dashboard.urls",
        )
        if find_spec(module)
    ),
]
