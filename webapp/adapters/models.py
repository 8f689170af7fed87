"""The catalogue of base models, and the adapters that jobs made of them."""

import uuid

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class BaseModel(models.Model):
    """A base model that this installation trains on and serves. Its identity is the digest."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    #: The folder's name under MODELS_DIR, and `model` in the API.
    name = models.CharField(max_length=100, unique=True)
    digest = models.CharField(max_length=64)
    source = models.CharField(max_length=200)
    revision = models.CharField(max_length=100, blank=True)
    architecture = models.CharField(max_length=100)
    context_length = models.IntegerField()
    #: Decoder layers; null if it was entered before this was read.
    layers = models.IntegerField(null=True)
    memory_bytes = models.BigIntegerField()
    license = models.CharField(max_length=100)
    attribution = models.TextField(blank=True)
    languages = models.JSONField(default=list)
    #: What the licence asks a derived model's name to start with (Llama's), else empty.
    name_prefix = models.CharField(max_length=40, blank=True)
    #: A sentence shown wherever the model answers, e.g. what a demo model can and cannot do.
    label = models.CharField(max_length=200, blank=True)
    is_default = models.BooleanField(default=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["is_default"], condition=Q(is_default=True), name="one_default_base"
            )
        ]

    def __str__(self) -> str:
        return self.name


class Adapter(models.Model):
    """The immutable result of a job. Versions count up per end user (or per tenant for tenant-wide ones)."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.CASCADE, related_name="adapters")
    end_user = models.ForeignKey(
        "tenants.EndUser", null=True, blank=True, on_delete=models.CASCADE, related_name="adapters"
    )
    base = models.ForeignKey(BaseModel, on_delete=models.PROTECT, related_name="adapters")
    job = models.OneToOneField("jobs.Job", on_delete=models.RESTRICT, related_name="adapter")
    #: The serving name (adapters_store.names), "ap-…" or "aa-…".
    name = models.CharField(max_length=70)
    digest = models.CharField(max_length=64)
    #: What API clients call it: "ft:<base>:<suffix or end user>:<8 hex>"; with the licence's prefix if there is one.
    public_name = models.CharField(max_length=300)
    method = models.CharField(max_length=10)
    position = models.CharField(max_length=10)
    rank = models.IntegerField()
    size = models.BigIntegerField()
    version = models.IntegerField()
    #: Empty once deleted, as is `object_digests`: the sha256 of each of its files in storage.
    manifest = models.JSONField()
    object_digests = models.JSONField(default=list)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "public_name"], name="adapter_public_name_once"),
        ]
        indexes = [
            models.Index(fields=["tenant", "-created_at"]),
            models.Index(fields=["tenant", "name"]),
        ]

    def __str__(self) -> str:
        # Not the public name: whose adapter it is may have chosen a part of it, and this is seen by staff.
        return self.name


class Forgetting(models.Model):
    """An adapter that the engine is still to forget, written when its manifest leaves storage; gone once it was told.

    No foreign key: the name outlives the row of its adapter, if there ever was one.
    """

    id = models.BigAutoField(primary_key=True)
    #: What the engine is asked for: "<tenant>/<serving name>".
    name = models.CharField(max_length=110)
    not_before = models.DateTimeField(db_default=Now())
