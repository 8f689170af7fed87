"""Routes of trainers. Ids are 32 hex digits, as in Celery's message."""

from uuid import UUID

from django.urls import path, register_converter

from webapp.jobs import internal


class HexId:
    regex = "[0-9a-f]{32}"

    def to_python(self, value: str) -> UUID:
        return UUID(value)

    def to_url(self, value: UUID | str) -> str:
        return UUID(str(value)).hex


register_converter(HexId, "hexid")

urlpatterns = [
    path(f"internal/jobs/<hexid:job>/{verb}", view, name=f"internal-job-{verb}")
    for verb, view in internal.job_views.items()
] + [path("internal/workers/<hexid:worker>", internal.worker_view, name="internal-worker")]
