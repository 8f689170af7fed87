"""Side by side over HTTP: a session instead of a key, the same gateway, and one's own models only."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.webapp.adapter_rows import adapter_row
from tests.webapp.chat.conftest import engine  # noqa: F401 (the fixture)
from tests.webapp.chat.faulty_engine import FaultyEngine
from tests.webapp.company import PASSWORD, Company
from tests.webapp.dashboard.conftest import things_of
from webapp.jobs.models import Job, State
from webapp.tenants.models import Membership
from webapp.usage.models import UsageRow

pytestmark = pytest.mark.django_db(transaction=True)
Ask = Callable[..., httpx.Response]


@pytest.fixture
def ask(live_url: str) -> Ask:
    """Log a person in as a browser does, and put a question."""

    def put(membership: Membership | None, **question: Any) -> httpx.Response:
        with httpx.Client(base_url=live_url, trust_env=False, timeout=30, verify=False) as browser:
            browser.get("/login")
            token = browser.cookies["csrftoken"]
            if membership is not None:
                form = {"username": membership.user.email, "password": PASSWORD, "csrfmiddlewaretoken": token}
                assert browser.post("/login", data=form, headers={"referer": live_url}).status_code == 302
            headers = {"x-csrftoken": browser.cookies["csrftoken"], "referer": live_url}
            if question.pop("forged", False):
                headers = {}
            body = {"messages": [{"role": "user", "content": "hi"}]} | question
            return browser.post("/chat/answers", json=body, headers=headers)

    return put


def words(response: httpx.Response) -> str:
    events = [json.loads(event[6:]) for event in response.text.split("\n\n") if event.startswith("data: {")]
    assert response.text.endswith("data: [DONE]\n\n")
    return "".join(event["choices"][0]["delta"].get("content", "") for event in events if event["choices"])


def test_both_sides(company: Company, engine: FaultyEngine, ask: Ask) -> None:  # noqa: F811
    adapter = adapter_row(company, end_user=company.teammate.end_user)
    for side, said in (("own", adapter.public_name), ("base", "base")):
        response = ask(company.teammate, side=side, adapter=str(adapter.id))
        assert response.status_code == 200
        assert words(response) == "Hello there, friend."
        assert "cached_tokens" not in response.text
        assert response.headers["x-attune-adapter"] == said
    assert [body["model"].split("/")[-1] for body in engine.bodies] == [adapter.name, "tiny"]
    rows = UsageRow.objects.order_by("created_at")
    assert [row.adapter for row in rows] == [adapter, None]
    assert {row.end_user for row in rows} == {company.teammate.end_user}


def test_what_did_not_pass_answers_nobody(company: Company, engine: FaultyEngine, ask: Ask) -> None:  # noqa: F811
    adapter = adapter_row(company, end_user=company.teammate.end_user)
    Job.objects.filter(id=adapter.job_id).update(state=State.FAILED)
    for side in ("own", "base"):
        response = ask(company.teammate, side=side, adapter=str(adapter.id))
        assert (response.status_code, response.json()["error"]["code"]) == (400, "adapter_not_passed")
    assert engine.bodies == []


@pytest.mark.slow
def test_only_ones_own_models(
    company: Company,
    other_company: Company,
    engine: FaultyEngine,  # noqa: F811
    ask: Ask,
) -> None:
    private = things_of(company, company.teammate).first
    companys = adapter_row(company, end_user=company.maren)
    wide = adapter_row(company, end_user=None)
    for who, adapter, status in (
        (company.owner, private, 404),
        (other_company.owner, private, 404),
        (other_company.owner, companys, 404),
        (company.teammate, companys, 404),
        (company.owner, companys, 200),
        (other_company.owner, wide, 404),
        (company.teammate, wide, 200),
    ):
        for side in ("own", "base"):
            assert ask(who, side=side, adapter=str(adapter.id)).status_code == status
    assert len(engine.bodies) == 4


def test_logged_out_or_forged(company: Company, engine: FaultyEngine, ask: Ask) -> None:  # noqa: F811
    adapter = adapter_row(company, end_user=company.teammate.end_user)
    out = ask(None, side="own", adapter=str(adapter.id))
    assert (out.status_code, out.json()["error"]["code"]) == (401, "logged_out")
    assert ask(company.teammate, side="own", adapter=str(adapter.id), forged=True).status_code == 403
    assert engine.bodies == []


@pytest.mark.parametrize(
    "question",
    [
        {"side": "own"},
        {"side": "other"},
        {"side": "own", "model": "tiny"},
        {"side": "own", "messages": []},
        {"side": "own", "messages": [{"role": "user", "content": "x", "chat_template": "y"}]},
        {"side": "own", "temperature": 9},
        {"side": "own", "max_tokens": 10**6},
    ],
)
def test_questions_that_are_none(
    company: Company,
    engine: FaultyEngine,  # noqa: F811
    ask: Ask,
    question: dict[str, Any],
) -> None:
    adapter = adapter_row(company, end_user=company.teammate.end_user)
    fields = question if question == {"side": "own"} else {"adapter": str(adapter.id)} | question
    response = ask(company.teammate, **fields)
    assert response.status_code == 400
    assert engine.bodies == []


def test_an_engine_that_is_away_is_said_in_words(company: Company, ask: Ask) -> None:
    adapter = adapter_row(company, end_user=company.teammate.end_user)
    response = ask(company.teammate, side="own", adapter=str(adapter.id))
    assert response.status_code == 503
    assert "Try again" in response.json()["error"]["message"]
