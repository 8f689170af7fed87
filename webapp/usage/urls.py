"""Usage pages."""

from django.urls import path

from webapp.usage import views

urlpatterns = [
    path("usage", views.usage, name="usage"),
    path("staff/usage", views.staff_usage, name="staff_usage"),
]
