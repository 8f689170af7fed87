"""OpenAI's routes. None ends in a slash, and none is redirected to one."""

from django.urls import path

from webapp.api import files, jobs, model_list, schema

urlpatterns = [
    path("v1/files", files.Files.as_view(), name="api-files"),
    path("v1/files/<str:file>", files.FileView.as_view(), name="api-file"),
    path("v1/files/<str:file>/content", files.FileContent.as_view(), name="api-file-content"),
    path("v1/files/<str:file>/report", files.FileReport.as_view(), name="api-file-report"),
    path("v1/fine_tuning/jobs", jobs.Jobs.as_view(), name="api-jobs"),
    path("v1/fine_tuning/jobs/<str:job>", jobs.JobView.as_view(), name="api-job"),
    path("v1/fine_tuning/jobs/<str:job>/cancel", jobs.JobCancel.as_view(), name="api-job-cancel"),
    path("v1/fine_tuning/jobs/<str:job>/pause", jobs.JobPause.as_view(), name="api-job-pause"),
    path("v1/fine_tuning/jobs/<str:job>/resume", jobs.JobResume.as_view(), name="api-job-resume"),
    path("v1/fine_tuning/jobs/<str:job>/events", jobs.JobEvents.as_view(), name="api-job-events"),
    path(
        "v1/fine_tuning/jobs/<str:job>/checkpoints", jobs.JobCheckpoints.as_view(), name="api-job-checkpoints"
    ),
    path("v1/models", model_list.Models.as_view(), name="api-models"),
    # A model's name may hold a slash, and clients send it raw or as %2F.
    path("v1/models/<path:model>", model_list.Model.as_view(), name="api-model"),
    path("api/schema", schema.Schema.as_view(), name="api-schema"),
]
