"""Signing up, and who may."""

import pytest

from webapp.config.faults import BadRequest, NotAllowed
from webapp.tenants import accounts
from webapp.tenants.accounts import end_user_ensure, signup, signup_is_open, tenant_create
from webapp.tenants.models import Membership, Role, User

pytestmark = pytest.mark.django_db
PASSWORD = "a long enough phrase"


def test_the_first_person_owns_a_company_and_has_a_model_of_their_own() -> None:
    membership = signup(email=" Owner@Example.com ", password=PASSWORD, tenant_name="Acme")
    assert (membership.role, membership.tenant.name) == (Role.OWNER, "Acme")
    assert membership.user.email == "owner@example.com"
    assert membership.end_user.tenant == membership.tenant
    assert membership.user.check_password(PASSWORD)


def test_then_sign_up_is_closed() -> None:
    signup(email="a@example.com", password=PASSWORD, tenant_name="A")
    assert not signup_is_open()
    with pytest.raises(NotAllowed, match="closed"):
        signup(email="b@example.com", password=PASSWORD, tenant_name="B")
    assert not User.objects.filter(email="b@example.com").exists()


def test_unless_the_operator_opens_it(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = accounts.settings().model_copy(update={"signup_open": True})
    monkeypatch.setattr(accounts, "settings", lambda: opened)
    for name in ("a", "b"):
        signup(email=f"{name}@example.com", password=PASSWORD, tenant_name=name)
    assert Membership.objects.count() == 2


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"email": "nobody"}, "email"),
        ({"password": "short"}, "password"),
        ({"password": "password1234"}, "password"),
        ({"tenant_name": " "}, "tenant_name"),
        ({"tenant_name": "x" * 101}, "tenant_name"),
    ],
)
def test_bad_sign_ups_name_the_field(fields: dict[str, str], param: str) -> None:
    good = {"email": "a@example.com", "password": PASSWORD, "tenant_name": "A"}
    with pytest.raises(BadRequest) as refused:
        signup(**{**good, **fields})
    assert refused.value.param == param
    assert not User.objects.exists()


def test_one_account_an_address() -> None:
    accounts.user_create(email="a@example.com", password=PASSWORD)
    with pytest.raises(BadRequest, match="log in"):
        accounts.user_create(email="A@example.com", password=PASSWORD)


@pytest.mark.parametrize("external_id", ["", "x" * 201, "a\x00b"])
def test_unusable_ids_of_end_users(external_id: str) -> None:
    with pytest.raises(BadRequest):
        end_user_ensure(tenant=tenant_create(name="A"), external_id=external_id)


def test_an_end_user_is_made_once_a_tenant() -> None:
    tenant = tenant_create(name="A")
    assert end_user_ensure(tenant=tenant, external_id="m") == end_user_ensure(tenant=tenant, external_id="m")
    assert end_user_ensure(tenant=tenant_create(name="B"), external_id="m").tenant.name == "B"
