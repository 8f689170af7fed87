"""Uploads, and the conversations that were made of them once."""

import uuid

from django.db import models
from django.db.models.functions import Now

from training_jobs.messages import JobType
from webapp.datasets.formats import preferences


class FileStatus(models.TextChoices):
    """OpenAI's words for the state of a file. There is no "uploaded": a file is checked before it is a row."""

    PROCESSED = "processed"
    ERROR = "error"


class File(models.Model):
    """An upload. Its bytes, and the conversations made of it, are objects in S3 under the tenant's prefix."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.CASCADE, related_name="files")
    end_user = models.ForeignKey(
        "tenants.EndUser", null=True, blank=True, on_delete=models.CASCADE, related_name="files"
    )
    uploaded_by = models.ForeignKey(
        "tenants.User", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    filename = models.CharField(max_length=255)
    purpose = models.CharField(max_length=40)
    size = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    status = models.CharField(max_length=10, choices=FileStatus)
    #: The format's name (webapp/datasets/formats), empty when none fitted.
    format = models.CharField(max_length=40, blank=True)
    #: Report.as_json (webapp/datasets/validate.py): counts, notes, and the first bad rows. For the file's readers
    #: alone (readers.py): it has names, and examples of voices.
    report = models.JSONField(default=dict)
    #: Every bad row, one JSON object a line; empty when there is none.
    report_sha256 = models.CharField(max_length=64, blank=True)
    report_size = models.BigIntegerField(default=0)
    conversations_sha256 = models.CharField(max_length=64, blank=True)
    conversations_size = models.BigIntegerField(default=0)
    conversations_count = models.IntegerField(default=0)
    #: Assistant turns that are trained: one example each.
    examples_count = models.IntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["tenant", "-created_at"]),
            models.Index(fields=["tenant", "sha256"]),
            models.Index(fields=["tenant", "conversations_sha256"]),
        ]

    def __str__(self) -> str:
        return self.public_id

    @property
    def public_id(self) -> str:
        return f"file-{self.id.hex}"

    @property
    def job_type(self) -> JobType:
        """How it can be trained on."""
        return "dpo" if self.format == preferences.NAME else "supervised"


class ObjectRemoval(models.Model):
    """An object that may be garbage, written with (or before) the change that makes it so.

    The sweeper removes it from S3 unless some row needs it. No foreign key to the tenant: the object outlives its
    tenant's row by a moment.
    """

    id = models.BigAutoField(primary_key=True)
    key = models.CharField(max_length=200)
    not_before = models.DateTimeField(db_default=Now())
