"""Invitations: who may make which, and that a link makes one member, once, in time."""

import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from tests.webapp.company import PASSWORD, Company, company_create
from webapp.config.faults import BadRequest, Gone, NotAllowed, NotFound, UserFault
from webapp.tenants.accounts import member_add, signup_is_open, user_create
from webapp.tenants.invitations import (
    invitation_accept,
    invitation_create,
    invitation_resolve,
    invitation_withdraw,
    still_open,
)
from webapp.tenants.models import Invitation, Membership, Role, User

pytestmark = pytest.mark.django_db
NEW = "new@example.com"


def invited(company: Company, email: str = NEW, role: str = Role.MEMBER) -> str:
    return invitation_create(inviter=company.owner, email=email, role=role)[1]


def admin_of(company: Company) -> Membership:
    user = user_create(email="admin@example.com", password=PASSWORD)
    return member_add(tenant=company.tenant, user=user, role=Role.ADMIN)


def assert_opens_nothing(token: str) -> None:
    for verb in (
        lambda: invitation_resolve(token),
        lambda: invitation_accept(token=token, password=PASSWORD),
    ):
        with pytest.raises(Gone) as refused:
            verb()
        assert refused.value.code == "invitation_gone"
    assert not User.objects.filter(email=NEW).exists()


class TestCreate:
    @pytest.mark.parametrize(
        ("inviter", "may"),
        [
            (Role.OWNER, {Role.ADMIN, Role.MEMBER}),
            (Role.ADMIN, {Role.MEMBER}),
            (Role.MEMBER, set()),
        ],
    )
    def test_roles_are_given_downwards(self, company: Company, inviter: Role, may: set[Role]) -> None:
        person = {Role.OWNER: company.owner, Role.MEMBER: company.teammate}.get(inviter) or admin_of(company)
        for role in (*Role, "king"):
            if role in may:
                assert invitation_create(inviter=person, email=NEW, role=role)[0].role == role
            else:
                with pytest.raises(NotAllowed) as refused:
                    invitation_create(inviter=person, email=NEW, role=role)
                assert (refused.value.code, refused.value.param) == ("role_not_yours", "role")

    @pytest.mark.parametrize(
        "email", ["", "nobody", "a@b\x00.example", f"{'x' * 60}@{'y.' * 100}example.com"]
    )
    def test_an_unusable_address(self, company: Company, email: str) -> None:
        with pytest.raises(BadRequest) as refused:
            invited(company, email)
        assert refused.value.code == "bad_email"

    def test_somebody_of_the_company(self, company: Company) -> None:
        with pytest.raises(BadRequest) as refused:
            invited(company, company.teammate.user.email.upper())
        assert refused.value.code == "already_member"

    def test_only_an_hmac_is_stored(self, company: Company) -> None:
        token = invited(company)
        assert not any(token in str(value) for value in Invitation.objects.values().get().values())

    def test_a_new_link_ends_the_addresss_last_one(self, company: Company) -> None:
        first, second = invited(company, role=Role.ADMIN), invited(company, " NEW@example.com ")
        assert_opens_nothing(first)
        assert invitation_accept(token=second, password=PASSWORD).role == Role.MEMBER

    def test_expired_ones_are_forgotten(self, company: Company) -> None:
        invited(company, "late@example.com")
        Invitation.objects.update(expires_at=timezone.now())
        invited(company)
        assert Invitation.objects.get().email == NEW


class TestAccept:
    @pytest.mark.parametrize("role", [Role.ADMIN, Role.MEMBER])
    def test_a_new_person_joins_while_sign_up_is_closed(self, company: Company, role: Role) -> None:
        assert not signup_is_open()
        membership = invitation_accept(token=invited(company, role=role), password=PASSWORD)
        assert (membership.tenant, membership.role) == (company.tenant, role)
        assert membership.user.email == NEW
        assert membership.user.check_password(PASSWORD)
        assert membership.end_user.external_id.startswith("member:")
        assert not Invitation.objects.exists()

    def test_a_link_works_once(self, company: Company) -> None:
        token = invited(company)
        invitation_accept(token=token, password=PASSWORD)
        with pytest.raises(Gone):
            invitation_accept(token=token, password=PASSWORD)
        assert Membership.objects.filter(user__email=NEW).count() == 1

    def test_a_weak_password_leaves_the_link_good(self, company: Company) -> None:
        token = invited(company)
        with pytest.raises(BadRequest) as refused:
            invitation_accept(token=token, password="short")
        assert (refused.value.code, refused.value.param) == ("bad_password", "password")
        invitation_accept(token=token, password=PASSWORD)

    def test_a_person_with_a_login_gives_its_password(self, company: Company) -> None:
        user = user_create(email=NEW, password=PASSWORD)
        token = invited(company)
        with pytest.raises(BadRequest) as refused:
            invitation_accept(token=token, password="another long phrase")
        assert refused.value.code == "wrong_password"
        assert invitation_accept(token=token, password=PASSWORD).user == user

    def test_a_login_that_was_switched_off(self, company: Company) -> None:
        user_create(email=NEW, password=PASSWORD)
        User.objects.filter(email=NEW).update(is_active=False)
        with pytest.raises(BadRequest) as refused:
            invitation_accept(token=invited(company), password=PASSWORD)
        assert refused.value.code == "wrong_password"

    def test_a_login_has_one_company(self, company: Company, other_company: Company) -> None:
        theirs = other_company.teammate.user
        token = invited(company, theirs.email)
        with pytest.raises(BadRequest) as refused:
            invitation_accept(token=token, password=PASSWORD)
        assert refused.value.code == "has_company"
        assert Membership.objects.get(user=theirs).tenant == other_company.tenant


class TestNoLongerGood:
    def test_unknown(self, company: Company) -> None:
        invited(company)
        row = Invitation.objects.get()
        for made_up in ("", "x" * 43, row.hmac, str(row.id), row.id.hex):
            assert_opens_nothing(made_up)

    def test_withdrawn(self, company: Company) -> None:
        token = invited(company)
        invitation_withdraw(invitation=Invitation.objects.get())
        assert_opens_nothing(token)

    def test_expired(self, company: Company) -> None:
        token = invited(company)
        left = Invitation.objects.get().expires_at - timezone.now()
        assert timedelta(days=6, hours=23) < left <= timedelta(days=7)
        Invitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
        assert_opens_nothing(token)
        assert not still_open(Invitation.objects.all()).exists()

    def test_its_inviter_may_not_give_the_role_any_more(self, company: Company) -> None:
        token = invited(company, role=Role.ADMIN)
        Membership.objects.filter(id=company.owner.id).update(role=Role.ADMIN)
        assert_opens_nothing(token)

    def test_its_inviters_login_was_switched_off(self, company: Company) -> None:
        token = invited(company)
        User.objects.filter(id=company.owner.user_id).update(is_active=False)
        assert_opens_nothing(token)

    def test_withdrawing_what_was_just_used(self, company: Company) -> None:
        token = invited(company)
        invitation = Invitation.objects.get()
        invitation_accept(token=token, password=PASSWORD)
        with pytest.raises(NotFound):
            invitation_withdraw(invitation=invitation)


def at_once(tokens: list[str]) -> list[str | None]:
    """What each of several simultaneous clicks came to: a fault's code, or None for a new member."""
    start, outcomes = threading.Barrier(len(tokens)), []

    def click(token: str) -> None:
        start.wait()
        try:
            invitation_accept(token=token, password=PASSWORD)
            outcomes.append(None)
        except UserFault as fault:
            outcomes.append(fault.code)
        finally:
            connection.close()

    threads = [threading.Thread(target=click, args=[token]) for token in tokens]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return outcomes


@pytest.mark.django_db(transaction=True)
class TestRace:
    def test_clicks_on_one_link_make_one_member(self, company: Company) -> None:
        outcomes = at_once([invited(company)] * 4)
        assert sorted(outcomes, key=str) == [None, *["invitation_gone"] * 3]
        assert Membership.objects.filter(user__email=NEW).count() == 1
        assert company.tenant.end_users.filter(external_id__startswith="member:").count() == 3

    def test_two_companies_links_for_one_address(self, company: Company) -> None:
        outcomes = at_once([invited(company), invited(company_create("Umbrella"))])
        assert sorted(outcomes, key=str) == [None, "has_company"]
        assert Membership.objects.filter(user__email=NEW).count() == 1
