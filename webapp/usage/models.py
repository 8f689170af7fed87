"""What was used, by whom, counted once. Numbers only: never a prompt or an answer."""

import uuid

from django.db import models
from django.db.models.functions import Now


class UsageRow(models.Model):
    """One chat request or one finished training job (`kind`). `request_id` makes a repeat harmless."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.CASCADE, related_name="usage")
    end_user = models.ForeignKey(
        "tenants.EndUser", null=True, blank=True, on_delete=models.SET_NULL, related_name="usage"
    )
    adapter = models.ForeignKey(
        "adapters.Adapter", null=True, blank=True, on_delete=models.SET_NULL, related_name="usage"
    )
    api_key = models.ForeignKey(
        "tenants.ApiKey", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    kind = models.CharField(max_length=10, choices=[("chat", "chat"), ("training", "training")])
    base = models.CharField(max_length=100)
    request_id = models.CharField(max_length=64)
    status = models.IntegerField()
    input_tokens = models.BigIntegerField(default=0)
    cached_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    #: Seconds to the first token, and in all.
    first_token_seconds = models.FloatField(null=True, blank=True)
    seconds = models.FloatField(default=0)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["kind", "request_id"], name="usage_counted_once")]
        indexes = [models.Index(fields=["tenant", "-created_at"]), models.Index(fields=["-created_at"])]
