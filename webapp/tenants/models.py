"""Who there is: tenants, the people who log in, the end users that adapters are for, and API keys."""

import uuid

from django.contrib.auth.models import AbstractUser
from django.db import models


class User(AbstractUser):
    """A person with a login, by e-mail address. What they may do in a tenant is in Membership."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    username = None
    email = models.EmailField(unique=True)

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: list[str] = []


class Tenant(models.Model):
    """A customer company. Every other table with customers' rows has a `tenant`."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=100)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name

    @property
    def storage_id(self) -> str:
        """The tenant's prefix in storage and in the engine's adapter names: 32 hex digits."""
        return self.id.hex


class EndUser(models.Model):
    """Whoever an adapter is for; `external_id` is the tenant's own id for them (`user` in API calls)."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="end_users")
    external_id = models.CharField(max_length=200)
    active_adapter = models.ForeignKey(
        "adapters.Adapter", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "external_id"], name="end_user_once_a_tenant")
        ]

    def __str__(self) -> str:
        return self.external_id


class Role(models.TextChoices):
    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"


class Membership(models.Model):
    """A person in a tenant. A person has an end user of their own there: their own model."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="memberships")
    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="membership")
    role = models.CharField(max_length=10, choices=Role, default=Role.MEMBER)
    end_user = models.OneToOneField(EndUser, on_delete=models.PROTECT, related_name="membership")
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.user} ({self.role})"


class ApiKey(models.Model):
    """A key for the API. The key itself is shown once; here is only an HMAC of it.

    With `end_user` it is a user key and acts for that end user only.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="api_keys")
    end_user = models.ForeignKey(EndUser, null=True, blank=True, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=20)
    hmac = models.CharField(max_length=64, unique=True)
    created_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"
