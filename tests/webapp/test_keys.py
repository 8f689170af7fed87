"""API keys: found by their beginning, known by an HMAC, refused once revoked."""

import pytest

from webapp.config.faults import NotAuthenticated
from webapp.tenants.accounts import end_user_ensure, tenant_create
from webapp.tenants.keys import api_key_create, api_key_resolve, api_key_revoke
from webapp.tenants.models import ApiKey

pytestmark = pytest.mark.django_db


def test_a_key_names_its_tenant_and_end_user() -> None:
    tenant = tenant_create(name="A")
    end_user = end_user_ensure(tenant=tenant, external_id="maren")
    _, text = api_key_create(tenant=tenant, name="k", end_user=end_user)
    key = api_key_resolve(text)
    assert (key.tenant, key.end_user) == (tenant, end_user)
    key.refresh_from_db()
    assert key.last_used_at is not None


def test_only_an_hmac_is_stored() -> None:
    _, text = api_key_create(tenant=tenant_create(name="A"), name="k")
    row = ApiKey.objects.values().get()
    secret = text.split("_")[2]
    assert not any(secret in str(value) for value in row.values())


def test_a_changed_key_is_refused() -> None:
    _, text = api_key_create(tenant=tenant_create(name="A"), name="k")
    for index in range(len("attune_"), len(text)):
        changed = text[:index] + ("x" if text[index] != "x" else "y") + text[index + 1 :]
        with pytest.raises(NotAuthenticated):
            api_key_resolve(changed)


def test_a_right_checksum_alone_opens_nothing() -> None:
    """Someone who reads this code can make well-formed keys; they are not in the table."""
    tenant = tenant_create(name="A")
    key, text = api_key_create(tenant=tenant, name="k")
    _, other = api_key_create(tenant=tenant, name="other")
    ApiKey.objects.filter(id=key.id).update(hmac=ApiKey.objects.get(name="other").hmac)
    with pytest.raises(NotAuthenticated):
        api_key_resolve(text)
    assert api_key_resolve(other).name == "other"


def test_a_revoked_key_is_refused_at_once() -> None:
    key, text = api_key_create(tenant=tenant_create(name="A"), name="k")
    api_key_revoke(key=key)
    with pytest.raises(NotAuthenticated):
        api_key_resolve(text)
