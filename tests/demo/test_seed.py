"""The demo's company, on the real database."""

import json
from io import StringIO

import pytest
from django.contrib.auth import authenticate
from django.core.management import call_command

from webapp.tenants.keys import api_key_resolve
from webapp.tenants.models import Membership, Role, Tenant, User

pytestmark = pytest.mark.django_db


def seed(end_user: str = "maren") -> dict:
    out = StringIO()
    call_command("demo_seed", end_user, stdout=out)
    return json.loads(out.getvalue())


def test_everyone_can_log_in_and_the_key_works() -> None:
    made = seed()
    people = {role: authenticate(**login(made, role)) for role in ("owner", "member", "staff")}
    assert people["owner"].membership.role == Role.OWNER
    assert people["member"].membership.role == Role.MEMBER
    assert people["member"].membership.end_user.external_id == "maren"
    assert people["staff"].is_staff
    assert not Membership.objects.filter(user=people["staff"]).exists()
    key = api_key_resolve(made["api_key"])
    assert key.tenant == people["owner"].membership.tenant == people["member"].membership.tenant
    assert key.end_user is None


def test_again_is_the_same_company_with_new_secrets() -> None:
    first, second = seed(), seed("juno")
    assert (Tenant.objects.count(), User.objects.count()) == (1, 3)
    assert authenticate(**login(first, "owner")) is None
    assert authenticate(**login(second, "member")).membership.end_user.external_id == "juno"
    assert api_key_resolve(first["api_key"]).tenant == api_key_resolve(second["api_key"]).tenant


def login(made: dict, role: str) -> dict[str, str]:
    return {"username": made[role]["email"], "password": made[role]["password"]}
