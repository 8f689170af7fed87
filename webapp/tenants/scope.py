"""Who is asking, and the rows they may see: the one place where queries are scoped."""

from dataclasses import dataclass
from typing import TypeVar

from django.db.models import Model, QuerySet

from webapp.tenants.models import ApiKey, EndUser, Membership, Role, Tenant, User

M = TypeVar("M", bound=Model)


@dataclass(frozen=True)
class Scope:
    """An authenticated caller. With `end_user`, only that end user's rows exist for them."""

    tenant: Tenant
    end_user: EndUser | None = None
    user: User | None = None
    api_key: ApiKey | None = None

    @property
    def is_authenticated(self) -> bool:
        """What Django REST framework asks of a user."""
        return True

    def of(self, model: type[M]) -> QuerySet[M]:
        """The rows of a table with a `tenant` (and perhaps an `end_user`) that exist for this caller."""
        rows = model._default_manager.filter(tenant=self.tenant)
        return rows.filter(end_user=self.end_user) if self.end_user is not None else rows


def scope_of_key(key: ApiKey) -> Scope:
    return Scope(tenant=key.tenant, end_user=key.end_user, api_key=key)


def scope_of_member(membership: Membership) -> Scope:
    """Owners and admins see the rows of all (counts and states; content is a question of `may_read_file`)."""
    alone = membership.end_user if membership.role == Role.MEMBER else None
    return Scope(tenant=membership.tenant, end_user=alone, user=membership.user)
