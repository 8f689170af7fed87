"""Every address of the web process."""

from django.contrib import admin
from django.urls import include, path

from webapp.config.health import healthz

handler400 = "webapp.api.errors.bad_request"
handler404 = "webapp.api.errors.page_not_found"
handler500 = "webapp.api.errors.server_error"

urlpatterns = [
    path("healthz", healthz),
    path("admin/", admin.site.urls),
    path("", include("webapp.api.urls")),
    path("", include("webapp.chat.urls")),
    path("", include("webapp.jobs.urls")),
    path("", include("webapp.usage.urls")),
    path("", include("webapp.dashboard.urls")),
]
