"""Who there is: tenants, people who log in or are invited, the end users that adapters are for, and API keys."""

import uuid
from typing import Any

from django.contrib.auth.models import AbstractUser, BaseUserManager
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

#: Ids that begin so are those of people with a login, made here: a tenant neither chooses nor names them.
MEMBER_PREFIX = "member:"


class UserManager(BaseUserManager["User"]):
    """People by e-mail address; case does not make two people of one."""

    def get_by_natural_key(self, email: str | None) -> "User":
        return self.get(email=(email or "").strip().lower())

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> "User":
        user = self.model(email=email.strip().lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> "User":
        return self.create_user(email, password, is_staff=True, is_superuser=True, **fields)


class User(AbstractUser):
    """A person with a login, by e-mail address. What they may do in a tenant is in Membership."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    username = None
    email = models.EmailField(unique=True)

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: list[str] = []
    objects = UserManager()


class Plan(models.Model):
    """What a company gets of the trainers. Staff make and change plans in the admin; there is always STANDARD."""

    STANDARD = "standard"

    name = models.CharField(max_length=40, primary_key=True)
    #: While there are fewer trainers than wanted, work is shared out in proportion to the weights.
    weight = models.PositiveSmallIntegerField(default=1, validators=[MinValueValidator(1)])
    #: So many of its jobs may be with trainers at the same time.
    running_jobs = models.PositiveSmallIntegerField(default=8, validators=[MinValueValidator(1)])

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(weight__gte=1, running_jobs__gte=1), name="plan_gives_something"
            )
        ]

    def __str__(self) -> str:
        return self.name


class Tenant(models.Model):
    """A customer company. Every other table with customers' rows has a `tenant`."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=100)
    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="tenants")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    def __str__(self) -> str:
        return self.name

    @property
    def storage_id(self) -> str:
        """The tenant's prefix in storage and in the engine's adapter names: 32 hex digits."""
        return self.id.hex

    @property
    def public_id(self) -> str:
        """`organization_id` and `owned_by` in the API."""
        return f"org-{self.id.hex}"


class EndUser(models.Model):
    """Whoever an adapter is for; `external_id` is the tenant's own id for them (`user` in API calls)."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="end_users")
    external_id = models.CharField(max_length=200)
    active_adapter = models.ForeignKey(
        "adapters.Adapter", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

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
    end_user = models.OneToOneField(EndUser, on_delete=models.RESTRICT, related_name="membership")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    def __str__(self) -> str:
        return f"{self.user} ({self.role})"


class Invitation(models.Model):
    """An offer to join, until it is used or withdrawn. Its link is shown once; here is only an HMAC of the token."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField()
    role = models.CharField(max_length=10, choices=Role)
    hmac = models.CharField(max_length=64, unique=True)
    invited_by = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="+")
    expires_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "email"], name="invitation_once_an_address")]

    def __str__(self) -> str:
        return f"{self.email} ({self.role})"


class ApiKey(models.Model):
    """A key for the API. The key itself is shown once; here is only an HMAC of it.

    With `end_user` it is a user key and acts for that end user only.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="api_keys")
    end_user = models.ForeignKey(
        EndUser, null=True, blank=True, on_delete=models.CASCADE, related_name="api_keys"
    )
    name = models.CharField(max_length=100)
    #: The key's beginning, to find it by and to show; not secret.
    prefix = models.CharField(max_length=20, unique=True)
    hmac = models.CharField(max_length=64)
    created_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @property
    def member(self) -> Membership | None:
        """The person with a login whose end user this key acts for, if it is one's."""
        return getattr(self.end_user, "membership", None)
