"""The admin shows every record, changes few, and never shows what authenticates or what people wrote."""

import pytest
from django.apps import apps
from django.contrib import admin
from django.test import Client
from django.urls import reverse

from tests.webapp.company import Company
from tests.webapp.dashboard.conftest import SECRET_NAME, browser, things_of
from webapp.jobs.models import Job
from webapp.tenants.invitations import invitation_create
from webapp.tenants.models import ApiKey, Plan, Role, User
from webapp.usage.records import usage_record

pytestmark = pytest.mark.django_db
OURS = [
    model for app in apps.get_app_configs() if app.name.startswith("webapp.") for model in app.get_models()
]


@pytest.fixture
def staff() -> Client:
    client = Client(headers={"host": "localhost"})
    client.force_login(User.objects.create_superuser("staff@example.com", "a long enough phrase"))
    return client


def test_every_record_is_there() -> None:
    assert OURS
    assert [model for model in OURS if not admin.site.is_registered(model)] == []


@pytest.mark.slow
def test_every_page_opens_and_hides_what_it_must(company: Company, staff: Client) -> None:
    made = things_of(company, company.teammate)
    Job.objects.filter(id=made.job.id).update(token="t" * 64, dispatch_token="d" * 64)
    usage_record(tenant=company.tenant.id, kind="chat", request_id="r", base="tiny", status=200, seconds=1)
    invitation, _ = invitation_create(inviter=company.owner, email="new@example.com", role=Role.MEMBER)
    secrets = [invitation.hmac, *(key.hmac for key in ApiKey.objects.all())]
    secrets += [user.password for user in User.objects.all()] + ["t" * 64, "d" * 64, SECRET_NAME]
    for model in OURS:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        pages = [reverse(f"{name}_changelist") + "?q=a"]
        pages += [reverse(f"{name}_change", args=[row.pk]) for row in model._default_manager.all()[:1]]
        for page in pages:
            answer = staff.get(page)
            assert answer.status_code == 200, page
            text = answer.content.decode()
            assert [secret for secret in secrets if secret and secret in text] == [], page


def test_nothing_but_plans_is_made_or_deleted_here(company: Company, staff: Client) -> None:
    for model in OURS:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        assert staff.get(reverse(f"{name}_add")).status_code == (200 if model is Plan else 403)
        row = model._default_manager.first()
        if row is not None:
            assert staff.post(reverse(f"{name}_delete", args=[row.pk]), {"post": "yes"}).status_code == 403


def test_a_leaked_key_can_be_revoked(company: Company, staff: Client) -> None:
    key = ApiKey.objects.get(tenant=company.tenant, end_user=None)
    form = {"revoked_at_0": "2026-01-01", "revoked_at_1": "10:00:00"}
    assert staff.post(reverse("admin:tenants_apikey_change", args=[key.pk]), form).status_code == 302
    key.refresh_from_db()
    assert key.revoked_at is not None


def test_a_company_gets_another_plan(company: Company, staff: Client) -> None:
    form = {"name": "large", "weight": 4, "running_jobs": 20}
    assert staff.post(reverse("admin:tenants_plan_add"), form).status_code == 302
    changed = {"name": "renamed", "weight": 5, "running_jobs": 20}
    assert staff.post(reverse("admin:tenants_plan_change", args=["large"]), changed).status_code == 302
    assert (
        staff.post(reverse("admin:tenants_plan_add"), form | {"name": "none", "weight": 0}).status_code == 200
    )
    of_company = {"name": company.tenant.name, "plan": "large"}
    page = reverse("admin:tenants_tenant_change", args=[company.tenant.id])
    assert staff.post(page, of_company).status_code == 302
    company.tenant.refresh_from_db()
    assert (company.tenant.plan.name, company.tenant.plan.weight) == ("large", 5)
    assert set(Plan.objects.values_list("name", flat=True)) == {"large", Plan.STANDARD}


def test_quarantined_jobs_are_found(company: Company, staff: Client) -> None:
    poison, other = company.job(), company.job()
    Job.objects.filter(id=poison.id).update(state="failed", error_code="quarantined", failed_attempts=3)
    page = reverse("admin:jobs_job_changelist")
    listed = {answer: staff.get(f"{page}?quarantined={answer}").content.decode() for answer in ("yes", "no")}
    assert poison.public_id in listed["yes"]
    assert other.public_id not in listed["yes"]
    assert other.public_id in listed["no"]
    assert poison.public_id not in listed["no"]


def test_only_staff_get_in(company: Company) -> None:
    assert browser(company.owner).get("/admin/").status_code == 302
