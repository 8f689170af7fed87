"""Inviting on the page People, and the page behind the link."""

import io
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.test import Client
from structlog.stdlib import ProcessorFormatter

from tests.webapp.company import PASSWORD, Company
from tests.webapp.dashboard.conftest import browser
from webapp.dashboard.views import joining
from webapp.tenants.accounts import member_add, user_create
from webapp.tenants.invitations import invitation_create
from webapp.tenants.models import Invitation, Membership, Role

pytestmark = pytest.mark.django_db
NEW = "new@example.com"
FORM = {"email": NEW, "role": "member"}


def token_in(page: str) -> str:
    found = re.search(r"http://127\.0\.0\.1:8000/join/([\w-]{43})", page)
    assert found
    return found[1]


def withdraw_path(invitation: Invitation) -> str:
    return f"/people/invitations/{invitation.id}/withdraw"


@pytest.fixture
def admin(company: Company) -> Client:
    user = user_create(email="admin@example.com", password=PASSWORD)
    return browser(member_add(tenant=company.tenant, user=user, role=Role.ADMIN))


@pytest.fixture
def token(company: Company) -> str:
    return invitation_create(inviter=company.owner, email=NEW, role=Role.MEMBER)[1]


@pytest.fixture
def nobody() -> Client:
    return Client(headers={"host": "localhost"})


class TestPeople:
    def test_the_link_is_shown_once_and_the_invitation_listed(self, owner: Client) -> None:
        shown = owner.post("/people", FORM | {"role": "admin"})
        token = token_in(shown.content.decode())
        assert "no mail is sent" in shown.content.decode()
        assert "no-store" in shown["cache-control"]
        again = owner.get("/people").content.decode()
        assert token not in again
        row = again[again.index(f"<strong>{NEW}") :].split("</tr>")[0]
        assert 'data-label="Role">Admin<' in row
        assert f"{Invitation.objects.get().expires_at:%b %Y}" in row

    def test_an_admin_invites_members_alone(self, admin: Client) -> None:
        assert 'value="admin"' not in admin.get("/people").content.decode()
        assert admin.post("/people", FORM | {"role": "admin"}).status_code == 422
        assert not Invitation.objects.exists()
        assert admin.post("/people", FORM).status_code == 200

    def test_nobody_invites_owners(self, owner: Client) -> None:
        assert owner.post("/people", FORM | {"role": "owner"}).status_code == 422
        assert not Invitation.objects.exists()

    def test_members_invite_nobody(self, teammate: Client) -> None:
        assert teammate.post("/people", FORM).status_code == 404
        assert not Invitation.objects.exists()

    def test_what_is_wrong_is_said_at_its_field(self, company: Company, owner: Client) -> None:
        answer = owner.post("/people", FORM | {"email": company.teammate.user.email})
        assert answer.status_code == 422
        assert "belongs to your company already" in answer.content.decode()

    def test_who_may_withdraw(
        self, token: str, admin: Client, teammate: Client, outsider: Client, nobody: Client
    ) -> None:
        invitation = Invitation.objects.get()
        for other in (teammate, outsider):
            assert other.post(withdraw_path(invitation)).status_code == 404
        assert nobody.post(withdraw_path(invitation))["location"].startswith("/login")
        assert nobody.get(f"/join/{token}").status_code == 200
        assert NEW not in outsider.get("/people").content.decode()
        told = admin.post(withdraw_path(invitation), follow=True).content.decode()
        assert "is withdrawn" in told
        assert admin.post(withdraw_path(invitation)).status_code == 404
        assert nobody.get(f"/join/{token}").status_code == 410


class TestJoin:
    def test_a_new_person_chooses_a_password_and_is_in(
        self, company: Company, token: str, nobody: Client
    ) -> None:
        page = nobody.get(f"/join/{token}").content.decode()
        assert f"Join {company.tenant.name}" in page
        assert f'value="{NEW}"' in page
        assert "Choose a password" in page
        # The address is the invitation's, whatever a form says.
        answer = nobody.post(f"/join/{token}", {"password": PASSWORD, "email": "evil@example.com"})
        assert (answer.status_code, answer["location"]) == (302, "/")
        assert Membership.objects.get(user__email=NEW).tenant == company.tenant
        assert NEW in nobody.get("/").content.decode()

    def test_a_weak_password_is_refused_at_its_field(self, token: str, nobody: Client) -> None:
        answer = nobody.post(f"/join/{token}", {"password": "short"})
        assert answer.status_code == 422
        assert "too short" in answer.content.decode()

    def test_a_person_with_a_login_gives_its_password(self, token: str, nobody: Client) -> None:
        user_create(email=NEW, password=PASSWORD)
        assert "Your password" in nobody.get(f"/join/{token}").content.decode()
        wrong = nobody.post(f"/join/{token}", {"password": "another long phrase"})
        assert wrong.status_code == 422
        assert "not the password of your login" in wrong.content.decode()
        assert nobody.post(f"/join/{token}", {"password": PASSWORD}).status_code == 302

    def test_a_person_of_another_company_is_told(
        self, company: Company, other_company: Company, nobody: Client
    ) -> None:
        email = other_company.owner.user.email
        _, token = invitation_create(inviter=company.owner, email=email, role=Role.MEMBER)
        answer = nobody.post(f"/join/{token}", {"password": PASSWORD})
        assert answer.status_code == 422
        assert "a login has one" in answer.content.decode()

    def test_links_that_open_nothing_say_one_sentence(self, token: str, nobody: Client) -> None:
        path = f"/join/{token}"
        nobody.post(path, {"password": PASSWORD})
        someone = Client(headers={"host": "localhost"})
        answers = [ask(path) for path in (path, "/join/made-up") for ask in (someone.get, someone.post)]
        assert {answer.status_code for answer in answers} == {410}
        # The rest of a page has a CSRF token, which is never the same.
        pages = {answer.content.decode().partition("<main")[2] for answer in answers}
        assert len(pages) == 1
        assert "Ask whoever gave it to you for a new one." in pages.pop()


class TestTokenStaysPrivate:
    @pytest.mark.parametrize("is_good", [True, False])
    def test_the_page_is_not_kept_and_names_itself_to_nobody(
        self, token: str, nobody: Client, is_good: bool
    ) -> None:
        answer = nobody.get(f"/join/{token if is_good else 'made-up'}")
        assert answer["referrer-policy"] == "strict-origin"
        assert "no-store" in answer["cache-control"]

    def test_no_log_line_has_it(self, token: str, nobody: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        careful = Client(enforce_csrf_checks=True, headers={"host": "localhost"})
        faulty = Client(raise_request_exception=False, headers={"host": "localhost"})
        path = f"/join/{token}"
        with all_lines() as lines:
            nobody.get(path)
            nobody.put(path)
            nobody.post(path, {"password": "short"})
            assert careful.post(path, {"password": PASSWORD}).status_code == 403
            with monkeypatch.context() as patch:
                patch.setattr(joining, "invitation_accept", _fails)
                assert faulty.post(path, {"password": PASSWORD}).status_code == 500
            nobody.post(path, {"password": PASSWORD})
            nobody.get(path)
        text = lines.getvalue()
        assert "join/<str:token>" in text
        assert "CSRF" in text
        assert "Internal Server Error" in text
        assert token not in text


def _fails(**_: str) -> None:
    raise RuntimeError("a fault of ours")


@contextmanager
def all_lines() -> Iterator[io.StringIO]:
    """What the process writes to standard error, at the most talkative level."""
    root = logging.getLogger()
    handler = next(one for one in root.handlers if isinstance(one.formatter, ProcessorFormatter))
    lines, level = io.StringIO(), root.level
    before = handler.setStream(lines)
    root.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        handler.setStream(before)
        root.setLevel(level)
