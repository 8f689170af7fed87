"""Usage rows: written once, and summed as the pages show them."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tests.webapp.adapter_rows import adapter_row
from tests.webapp.company import Company
from webapp.jobs.models import Job, State, Worker
from webapp.tenants.models import User
from webapp.usage import reports
from webapp.usage.models import UsageRow
from webapp.usage.records import usage_record

pytestmark = pytest.mark.django_db


def used(company: Company, *, ago: timedelta = timedelta(0), **fields: Any) -> None:
    request_id = fields.pop("request_id", uuid.uuid4().hex)
    row = {"kind": "chat", "base": "tiny", "status": 200, "seconds": 1.0, "tenant": company.tenant.id}
    usage_record(request_id=request_id, **(row | fields))
    UsageRow.objects.filter(request_id=request_id).update(created_at=timezone.now() - ago)


def test_a_repeat_is_not_counted(company: Company) -> None:
    for tokens in (5, 500):
        used(company, request_id="same", output_tokens=tokens)
    used(company, request_id="same", kind="training")
    assert UsageRow.objects.get(kind="chat").output_tokens == 5
    assert UsageRow.objects.count() == 2


def test_totals_and_percentiles(company: Company, other_company: Company) -> None:
    for number in range(1, 101):
        used(company, output_tokens=3, input_tokens=10, first_token_seconds=number / 100)
    used(company, status=503)
    used(company, status=499, output_tokens=2)
    used(company, ago=timedelta(hours=2), output_tokens=1000)
    used(other_company, output_tokens=7)
    hour = reports.window("1h", "1h")
    found = reports.totals(reports.chat_rows(hour, company.tenant), hour)
    assert (found["requests"], found["failures"], found["input_tokens"]) == (102, 1, 1000)
    assert found["output_tokens"] == 302
    assert found["tokens_per_second"] == pytest.approx(302 / 3600)
    assert (found["p50"], found["p95"], found["p99"]) == pytest.approx((0.505, 0.9505, 0.9901))
    everyone = reports.totals(reports.chat_rows(hour), hour)
    assert everyone["output_tokens"] == 309


def test_nothing_used_is_zero_not_an_error(company: Company) -> None:
    hour = reports.window(None, "1h")
    found = reports.totals(reports.chat_rows(hour), hour)
    assert (found["requests"], found["output_tokens"], found["p50"]) == (0, 0, None)


def test_training_is_not_a_chat(company: Company) -> None:
    used(company, kind="training", input_tokens=10**6)
    assert not reports.chat_rows(reports.window("1d", "1d")).exists()


def test_the_training_queue(company: Company) -> None:
    for state in (State.QUEUED, State.DISPATCHED, State.RUNNING, State.GATING, State.FAILED, State.CANCELLED):
        Job.objects.filter(id=company.job().id).update(state=state)
    now = timezone.now()
    for busy, seen in ((True, now), (False, now), (True, now - timedelta(minutes=1))):
        Worker.objects.create(id=uuid.uuid4(), device="cpu", busy=busy, last_seen=seen)
    assert reports.training_queue() == {
        "waiting": 2,
        "running": 1,
        "gating": 1,
        "paused": 0,
        "workers": 2,
        "busy_workers": 1,
    }


@pytest.fixture
def staff() -> Client:
    client = Client(headers={"host": "localhost"})
    client.force_login(User.objects.create_superuser("staff@example.com", "a long enough phrase"))
    return client


def test_the_staff_page(company: Company, other_company: Company, staff: Client) -> None:
    adapter = adapter_row(company, end_user=company.maren)
    used(company, output_tokens=41, end_user=company.maren.id, adapter=adapter.id)
    used(other_company, output_tokens=43)
    page = staff.get("/staff/usage").content.decode()
    for shown in (
        company.tenant.name,
        other_company.tenant.name,
        "maren",
        adapter.public_name,
        ">41<",
        ">43<",
        ">84<",
    ):
        assert shown in page, shown
    assert "The engine does not answer." in page
    live = staff.get("/staff/usage?window=5m", headers={"hx-request": "true"}).content.decode()
    assert "<html" not in live
    assert 'hx-trigger="every 3s"' in live
    assert "window=5m" in live


def test_a_companys_own_page(company: Company, other_company: Company) -> None:
    used(company, output_tokens=41, end_user=company.teammate.end_user_id)
    used(other_company, output_tokens=43, end_user=other_company.maren.id)
    client = Client(headers={"host": "localhost"})
    client.force_login(company.owner.user)
    page = client.get("/usage").content.decode()
    assert ">41<" in page
    assert company.teammate.user.email in page, "people by their address, not by an id that says nothing"
    assert ">43<" not in page
    assert other_company.tenant.name not in page


def test_a_window_that_is_none(staff: Client) -> None:
    assert staff.get("/staff/usage?window=' OR 1=1").status_code == 200


def test_the_rate_since_the_last_look(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from tests.webapp.usage.test_engine_metrics import PAGE
    from webapp.usage import views
    from webapp.usage.engine_metrics import parse_metrics

    monkeypatch.setattr(views, "_last_reading", None)
    first = replace(parse_metrics(PAGE), generated_tokens=100, read_at=10.0)
    assert views._rate(first) is None
    assert views._rate(replace(first, generated_tokens=160, read_at=13.0)) == pytest.approx(20)
    assert views._rate(replace(first, generated_tokens=5, read_at=16.0)) is None, (
        "the engine was started anew"
    )
    assert views._rate(None) is None
