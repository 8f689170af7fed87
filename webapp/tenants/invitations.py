"""Invitations: a link that makes whoever holds it a member, once. Only an HMAC of its token is stored.

A row is an invitation that nobody has used or withdrawn: both delete it, so that no list of addresses piles up.
"""

import secrets
from datetime import timedelta

from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.crypto import salted_hmac

from webapp.config.database import advisory_lock
from webapp.config.faults import BadRequest, Gone, NotAllowed, NotFound
from webapp.tenants.accounts import address_clean, member_add, user_create
from webapp.tenants.models import Invitation, Membership, Role, User

GOOD_FOR = timedelta(days=7)
_INVITABLE = {Role.OWNER: (Role.MEMBER, Role.ADMIN), Role.ADMIN: (Role.MEMBER,)}


def roles_invitable(inviter: Membership) -> tuple[Role, ...]:
    """The roles that this person may give away."""
    return _INVITABLE.get(Role(inviter.role), ())


@transaction.atomic
def invitation_create(*, inviter: Membership, email: str, role: str) -> tuple[Invitation, str]:
    """An invitation and its link's token, which nobody can read again. An earlier one of the address ends.

    Raises BadRequest for an unusable address, NotAllowed for a role that is not the inviter's to give.
    """
    if role not in roles_invitable(inviter):
        raise NotAllowed(
            "Owners invite admins and members, admins invite members.", code="role_not_yours", param="role"
        )
    email, tenant = address_clean(email), inviter.tenant
    if Membership.objects.filter(tenant=tenant, user__email=email).exists():
        raise BadRequest("This person belongs to your company already.", code="already_member", param="email")
    Invitation.objects.filter(tenant=tenant, expires_at__lte=Now()).delete()
    token = secrets.token_urlsafe(32)
    invitation, _ = Invitation.objects.update_or_create(
        tenant=tenant,
        email=email,
        defaults={
            "role": role,
            "hmac": _hmac(token),
            "invited_by": inviter,
            "expires_at": timezone.now() + GOOD_FOR,
        },
    )
    return invitation, token


def invitation_resolve(token: str) -> Invitation:
    """The open invitation of a link; raises Gone."""
    return _found(Invitation.objects.all(), token)


@transaction.atomic
def invitation_accept(*, token: str, password: str) -> Membership:
    """The invited person joins: with a password that they choose now, or with the one of the login they have.

    Raises Gone; BadRequest for an unusable or wrong password, or a person who belongs to a company already.
    """
    # Whoever comes second waits here, and then finds no row.
    invitation = _found(Invitation.objects.select_for_update(of=("self",)), token)
    # Two companies' links, or a link and a sign-up, must not both make the login of one address.
    advisory_lock("signup")
    user = User.objects.filter(email=invitation.email).first()
    if user is None:
        user = user_create(email=invitation.email, password=password)
    elif not (user.is_active and user.check_password(password)):
        raise BadRequest(
            "This is not the password of your login. Check it and try again.",
            code="wrong_password",
            param="password",
        )
    elif Membership.objects.filter(user=user).exists():
        raise BadRequest(
            "Your login belongs to a company already, and a login has one. Ask for an invitation to another address.",
            code="has_company",
        )
    invitation.delete()
    return member_add(tenant=invitation.tenant, user=user, role=invitation.role)


def invitation_withdraw(*, invitation: Invitation) -> None:
    """From now on its link opens nothing. Raises NotFound when somebody has just used it."""
    deleted, _ = Invitation.objects.filter(id=invitation.id).delete()
    if not deleted:
        raise NotFound("There is no such invitation any more.", code="not_found")


def still_open(invitations: QuerySet[Invitation]) -> QuerySet[Invitation]:
    """Those whose link works: in time, and from somebody who may still give the role away."""
    may_give = Q()
    for inviter, roles in _INVITABLE.items():
        may_give |= Q(invited_by__role=inviter, role__in=roles)
    return invitations.filter(may_give, invited_by__user__is_active=True, expires_at__gt=Now())


def _found(invitations: QuerySet[Invitation], token: str) -> Invitation:
    found = still_open(invitations).select_related("tenant").filter(hmac=_hmac(token)).first()
    if found is None:
        # One sentence for all: it does not say whether there ever was such a link.
        raise Gone(
            "It was used or withdrawn, is older than seven days, or was not copied whole. "
            "Ask whoever gave it to you for a new one.",
            code="invitation_gone",
        )
    return found


def _hmac(token: str) -> str:
    return salted_hmac("attune.invitation", token, algorithm="sha256").hexdigest()
