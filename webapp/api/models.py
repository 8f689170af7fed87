"""Answers to requests that came with an Idempotency-Key, so that a repeat has one effect and one answer."""

from django.db import models
from django.db.models.functions import Now


class IdempotentRequest(models.Model):
    """Only successes: a refused request may be repeated with its fault mended."""

    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.CASCADE, related_name="+")
    api_key = models.ForeignKey("tenants.ApiKey", on_delete=models.CASCADE, related_name="+")
    route = models.CharField(max_length=100)
    key = models.CharField(max_length=255)
    #: sha256 of the body: the same key with another body is a mistake of the client's.
    body_sha256 = models.CharField(max_length=64)
    answer = models.JSONField()
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["api_key", "route", "key"], name="idempotency_key_once")
        ]
        indexes = [models.Index(fields=["created_at"])]
