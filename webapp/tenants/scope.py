"""Who is asking, and the rows they may see: the one place where queries are scoped."""

from dataclasses import dataclass
from typing import TypeVar

from django.db.models import Model, QuerySet

from webapp.config.faults import NotAllowed
from webapp.tenants.accounts import end_user_ensure
from webapp.tenants.models import MEMBER_PREFIX, ApiKey, EndUser, Membership, Role, Tenant, User

M = TypeVar("M", bound=Model)


@dataclass(frozen=True)
class Scope:
    """An authenticated caller. With `end_user`, only that end user's rows exist for them; `user` is a person."""

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
    """A key that a person made for themselves is that person: what it uploads is theirs alone."""
    member = key.member
    own = member is not None and member.user_id == key.created_by_id
    return Scope(
        tenant=key.tenant, end_user=key.end_user, user=member.user if member and own else None, api_key=key
    )


def scope_of_member(membership: Membership) -> Scope:
    """Owners and admins see the rows of all (counts and states; content is a question of datasets/readers.py)."""
    alone = membership.end_user if membership.role == Role.MEMBER else None
    return Scope(tenant=membership.tenant, end_user=alone, user=membership.user)


def acting_for(scope: Scope, user: str | None, *, param: str) -> str | None:
    """The id of the end user that a request is for, when it says `user` in its field `param`.

    Raises NotAllowed: a user key acts for its end user only, whether the request says so or not, and people with a
    login act for themselves.
    """
    if scope.end_user is not None:
        if user not in (None, scope.end_user.external_id):
            raise NotAllowed(
                f"This key acts for one end user only, and '{param}' names another. Leave it out or use another key.",
                code="wrong_user",
                param=param,
            )
        return scope.end_user.external_id
    if user is not None and user.startswith(MEMBER_PREFIX):
        raise NotAllowed(
            f"Users whose id begins with '{MEMBER_PREFIX}' are people with a login here; only they can upload, train "
            "and chat for themselves, in the dashboard or with a key of their own.",
            code="user_reserved",
            param=param,
        )
    return user


def end_user_for(scope: Scope, user: str | None, *, param: str) -> EndUser | None:
    """The end user of `acting_for`, made now if new; None: what is done is done for the tenant."""
    external_id = acting_for(scope, user, param=param)
    if external_id is None:
        return None
    return end_user_ensure(tenant=scope.tenant, external_id=external_id, param=param)
