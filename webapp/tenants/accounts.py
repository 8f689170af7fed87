"""People and companies: signing up, joining, and the end user that each of them has."""

import uuid

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction

from webapp.config.database import advisory_lock
from webapp.config.faults import BadRequest, NotAllowed
from webapp.config.settings import settings
from webapp.tenants.models import MEMBER_PREFIX, EndUser, Membership, Plan, Role, Tenant, User


def signup_is_open() -> bool:
    """Whether anyone may sign up: always with ATTUNE_SIGNUP_OPEN, else until there is a first owner."""
    return settings().signup_open or not Membership.objects.filter(role=Role.OWNER).exists()


@transaction.atomic
def signup(*, email: str, password: str, tenant_name: str) -> Membership:
    """A new person, their company, and their own end user in it. Raises NotAllowed when sign-up is closed."""
    # Two first owners at the same moment cannot both get in.
    advisory_lock("signup")
    if not signup_is_open():
        raise NotAllowed(
            "Sign-up is closed here. Ask the owner to invite you, or the operator to set ATTUNE_SIGNUP_OPEN=true.",
            code="signup_closed",
        )
    user = user_create(email=email, password=password)
    return member_add(tenant=tenant_create(name=tenant_name), user=user, role=Role.OWNER)


def user_create(*, email: str, password: str) -> User:
    """Raises BadRequest, with all that is wrong with the address or the password."""
    email = address_clean(email)
    if User.objects.filter(email=email).exists():
        raise BadRequest(
            "There is an account with this address; log in instead.", code="email_taken", param="email"
        )
    try:
        validate_password(password, User(email=email))
    except ValidationError as error:
        raise BadRequest(" ".join(error.messages), code="bad_password", param="password") from None
    return User.objects.create_user(email, password)


def address_clean(email: str) -> str:
    """As it is stored and compared; raises BadRequest."""
    email = email.strip().lower()
    try:
        User._meta.get_field("email").clean(email, None)
    except ValidationError:
        raise BadRequest("That is not an e-mail address.", code="bad_email", param="email") from None
    return email


def tenant_create(*, name: str) -> Tenant:
    name = name.strip()
    if not 1 <= len(name) <= 100:
        raise BadRequest("A company's name has 1 to 100 characters.", code="bad_name", param="tenant_name")
    standard, _ = Plan.objects.get_or_create(name=Plan.STANDARD)
    return Tenant.objects.create(name=name, plan=standard)


@transaction.atomic
def member_add(*, tenant: Tenant, user: User, role: str) -> Membership:
    """A person joins; their end user's id says nothing about them and cannot meet one that the tenant chose."""
    end_user = EndUser.objects.create(tenant=tenant, external_id=f"{MEMBER_PREFIX}{uuid.uuid4().hex}")
    return Membership.objects.create(tenant=tenant, user=user, role=role, end_user=end_user)


def end_user_ensure(*, tenant: Tenant, external_id: str, param: str = "user") -> EndUser:
    """The tenant's end user with this id, made now if it is new. Raises BadRequest for an unusable id.

    `param`: the request's field that holds it.
    """
    if not isinstance(external_id, str) or not 1 <= len(external_id) <= 200 or "\x00" in external_id:
        raise BadRequest("A user's id is a string of 1 to 200 characters.", code="bad_user", param=param)
    end_user, _ = EndUser.objects.get_or_create(tenant=tenant, external_id=external_id)
    return end_user
