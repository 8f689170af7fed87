"""`python manage.py demo_seed`: the company of `make demo`, as JSON that holds its passwords and its API key."""

import json
import secrets
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from webapp.tenants.accounts import end_user_ensure, member_add, tenant_create
from webapp.tenants.keys import api_key_create
from webapp.tenants.models import Membership, Role, Tenant, User

_OWNER, _MEMBER, _STAFF = (f"{name}@demo.example" for name in ("owner", "member", "staff"))


class Command(BaseCommand):
    help = "Make the demo's company, or give the one that is there new passwords and another API key."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("end_user", help="whose model the member talks to in the dashboard")

    @transaction.atomic
    def handle(self, *args: Any, **options: Any) -> None:
        passwords = {email: secrets.token_urlsafe(12) for email in (_OWNER, _MEMBER, _STAFF)}
        owner, member, staff = (_person(email, password) for email, password in passwords.items())
        User.objects.filter(id=staff.id).update(is_staff=True, is_superuser=True)
        tenant = _tenant(owner)
        Membership.objects.update_or_create(
            user=member,
            defaults={
                "tenant": tenant,
                "role": Role.MEMBER,
                "end_user": end_user_ensure(tenant=tenant, external_id=options["end_user"]),
            },
        )
        _, key = api_key_create(tenant=tenant, name="demo", created_by=owner)
        logins = zip(("owner", "member", "staff"), passwords.items(), strict=True)
        seed = {role: {"email": email, "password": password} for role, (email, password) in logins}
        self.stdout.write(json.dumps({"tenant": tenant.name, "api_key": key, **seed}))


def _person(email: str, password: str) -> User:
    person = User.objects.filter(email=email).first() or User(email=email)
    person.set_password(password)
    person.save()
    return person


def _tenant(owner: User) -> Tenant:
    known = Membership.objects.filter(user=owner).select_related("tenant").first()
    if known is not None:
        return known.tenant
    return member_add(tenant=tenant_create(name="Attune demo"), user=owner, role=Role.OWNER).tenant
