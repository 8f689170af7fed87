"""Owner, teammate and outsider before each page: what a person made is theirs, whatever the role of who looks."""

from typing import Any

import pytest
from django.test import Client

from tests.webapp.adapter_rows import adapter_row
from tests.webapp.company import Company
from tests.webapp.dashboard.conftest import SECRET_NAME, browser, things_of
from webapp.tenants.keys import api_key_create
from webapp.tenants.models import User

pytestmark = pytest.mark.django_db

PAGES = ("/", "/files", "/training", "/training/new", "/models", "/chat", "/keys")
MANAGERS = ("/people", "/usage")


def pages_of(thing: Any) -> list[tuple[str, str]]:
    """(method, path) of each page about one thing."""
    return [
        ("get", f"/files/{thing.file.id}"),
        ("post", f"/files/{thing.file.id}/delete"),
        ("get", f"/training/{thing.job.id}"),
        ("post", f"/training/{thing.job.id}/pause"),
        ("post", f"/training/{thing.job.id}/resume"),
        ("post", f"/training/{thing.job.id}/cancel"),
        ("post", f"/models/{thing.first.id}/activate"),
        ("post", f"/models/{thing.second.id}/deactivate"),
        ("get", f"/models/{thing.first.id}/delete"),
        ("post", f"/models/{thing.first.id}/delete"),
    ]


def test_a_person_reaches_everything_of_their_own(company: Company, teammate: Client) -> None:
    for method, path in pages_of(things_of(company, company.teammate)):
        assert getattr(teammate, method)(path).status_code in (200, 302), path


@pytest.mark.slow
def test_nobody_else_reaches_it(company: Company, owner: Client, teammate: Client, outsider: Client) -> None:
    """Not the owner of the same company either."""
    of_member, of_owner = things_of(company, company.teammate), things_of(company, company.owner)
    for thing, others in ((of_member, (owner, outsider)), (of_owner, (teammate, outsider))):
        for method, path in pages_of(thing):
            for other in others:
                assert getattr(other, method)(path).status_code == 404, path
    of_member.second.refresh_from_db()
    assert of_member.second.deleted_at is None
    company.teammate.end_user.refresh_from_db()
    assert company.teammate.end_user.active_adapter_id == of_member.second.id


def test_no_page_of_another_names_it(company: Company, owner: Client, outsider: Client) -> None:
    made = things_of(company, company.teammate)
    staff = Client(headers={"host": "localhost"})
    staff.force_login(User.objects.create_superuser("staff@example.com", "a long enough phrase"))
    looks = [(client, path) for client in (owner, outsider) for path in (*PAGES, *MANAGERS)]
    for client, path in (*looks, (staff, "/staff/usage")):
        text = client.get(path).content.decode()
        for secret in (
            SECRET_NAME,
            str(made.file.id),
            str(made.job.id),
            made.first.public_name,
            made.second.public_name,
            str(made.first.id),
        ):
            assert secret not in text, path
        if path.endswith("/usage") and client is not outsider:
            whose = text[text.index(f"{company.teammate.user.email}, own models") :].split("</tr>")[0]
            assert ">421<" in whose, "counted, under the person"


def test_managers_reach_what_the_api_made(company: Company, owner: Client, teammate: Client) -> None:
    file = company.file()
    job = company.job(training_file=file, end_user=company.maren)
    adapter = adapter_row(company, end_user=company.maren, active=True)
    for path in (f"/files/{file.id}", f"/training/{job.id}", f"/models/{adapter.id}/delete"):
        assert owner.get(path).status_code == 200, path
        assert teammate.get(path).status_code == 404, path
    assert adapter.public_name in owner.get("/models").content.decode()
    assert adapter.public_name not in teammate.get("/models").content.decode()


def test_the_owner_sees_a_members_counts_and_state(company: Company, owner: Client) -> None:
    things_of(company, company.teammate)
    text = " ".join(owner.get("/people").content.decode().split())
    row = text[text.index(company.teammate.user.email) :].split("</tr>")[0]
    for label, count in (("Files", 1), ("Training runs", 3), ("Models", 2)):
        assert f'data-label="{label}">{count}<' in row
    assert "Training</span>" in row


def test_the_company_pages_are_the_managers(company: Company, owner: Client, teammate: Client) -> None:
    for path in MANAGERS:
        assert owner.get(path).status_code == 200
        assert teammate.get(path).status_code == 404
    assert 'href="/people"' not in teammate.get("/").content.decode()


def test_everything_needs_a_login(client: Client, company: Company) -> None:
    made = things_of(company, company.owner)
    asked = [("get", path) for path in (*PAGES, *MANAGERS, "/staff/usage")] + pages_of(made)
    for method, path in asked:
        answer = getattr(client, method)(path, headers={"host": "localhost"})
        assert answer.status_code == 302, path
        assert answer["location"].startswith("/login?next="), path


def test_keys_are_their_owners(company: Company, owner: Client, teammate: Client, outsider: Client) -> None:
    mine, _ = api_key_create(
        tenant=company.tenant,
        name="teammate's",
        end_user=company.teammate.end_user,
        created_by=company.teammate.user,
    )
    companys, _ = api_key_create(tenant=company.tenant, name="company's")
    assert teammate.post(f"/keys/{companys.id}/revoke").status_code == 404
    assert outsider.post(f"/keys/{mine.id}/revoke").status_code == 404
    assert teammate.post(f"/keys/{mine.id}/revoke").status_code == 302
    assert owner.post(f"/keys/{companys.id}/revoke").status_code == 302
    mine.refresh_from_db()
    assert mine.revoked_at is not None


def test_a_members_key_acts_for_them_alone(company: Company, teammate: Client) -> None:
    """Even if the form is forged."""
    from webapp.tenants.models import ApiKey

    teammate.post("/keys", {"name": "k", "reach": "company"})
    assert ApiKey.objects.get(created_by=company.teammate.user).end_user == company.teammate.end_user


def test_staff_without_a_company_have_one_page(company: Company, owner: Client) -> None:
    staff = Client(headers={"host": "localhost"})
    staff.force_login(User.objects.create_superuser("staff@example.com", "a long enough phrase"))
    assert staff.get("/")["location"] == "/staff/usage"
    assert staff.get("/staff/usage").status_code == 200
    assert owner.get("/staff/usage").status_code == 404


def test_a_login_that_was_switched_off(company: Company) -> None:
    client = browser(company.teammate)
    User.objects.filter(id=company.teammate.user_id).update(is_active=False)
    assert client.get("/").status_code == 302
