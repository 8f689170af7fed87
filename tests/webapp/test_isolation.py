"""Every id of one company, on every route, by everyone of another company: not found.

Made from the URL resolver. A route that is not in the tables below fails `test_every_route_is_known`: say there how
a stranger would try it.
"""

import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from tests.webapp.adapter_rows import adapter_row
from tests.webapp.company import Company, company_create
from webapp.adapters.models import Adapter
from webapp.datasets.models import File
from webapp.jobs.models import Job
from webapp.tenants.invitations import invitation_create
from webapp.tenants.keys import api_key_create
from webapp.tenants.models import ApiKey, Invitation, Role

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Belongings:
    """What the first company has, in the words of routes."""

    company: Company
    file: File
    job: Job
    adapter: Adapter
    key: ApiKey
    invitation: Invitation

    def ids(self) -> dict[str, str]:
        return {
            "file": self.file.public_id,
            "job": self.job.public_id,
            "model": self.adapter.public_name,
            "after_event": self.job.events.get().public_id,
            "user": self.company.maren.external_id,
        }

    def uuids(self) -> dict[str, uuid.UUID]:
        rows = {"file": self.file, "job": self.job, "adapter": self.adapter, "key": self.key}
        return {name: row.id for name, row in (*rows.items(), ("invitation", self.invitation))}


#: Routes with an id in the path: the methods that exist. All others must not.
API = {
    "v1/files/<str:file>": {"get", "delete"},
    "v1/files/<str:file>/content": {"get"},
    "v1/files/<str:file>/report": {"get"},
    "v1/fine_tuning/jobs/<str:job>": {"get"},
    "v1/fine_tuning/jobs/<str:job>/cancel": {"post"},
    "v1/fine_tuning/jobs/<str:job>/pause": {"post"},
    "v1/fine_tuning/jobs/<str:job>/resume": {"post"},
    "v1/fine_tuning/jobs/<str:job>/events": {"get"},
    "v1/fine_tuning/jobs/<str:job>/checkpoints": {"get"},
    "v1/models/<path:model>": {"get", "delete"},
}
PAGES = {
    "files/<uuid:file>": {"get"},
    "files/<uuid:file>/preview": {"get"},
    "files/<uuid:file>/read-as": {"post"},
    "files/<uuid:file>/delete": {"post"},
    "training/<uuid:job>": {"get"},
    "training/<uuid:job>/cancel": {"post"},
    "training/<uuid:job>/pause": {"post"},
    "training/<uuid:job>/resume": {"post"},
    "models/<uuid:adapter>/activate": {"post"},
    "models/<uuid:adapter>/deactivate": {"post"},
    "models/<uuid:adapter>/delete": {"get", "post"},
    "keys/<uuid:key>/revoke": {"post"},
    "people/invitations/<uuid:invitation>/withdraw": {"post"},
}
#: Opened by an invitation's link alone, which is in no table and on no page.
LINKS = {"join/<str:token>"}
#: Trainers' routes: opened by a job's token alone, which no customer ever sees.
INTERNAL = {
    *(
        f"internal/jobs/<hexid:job>/{verb}"
        for verb in ("claim", "heartbeat", "uploads", "complete", "fail", "release")
    ),
    "internal/workers/<hexid:worker>",
}
#: Routes without an id in the path, and the ids that a body or a query may hold (tried in the tests named).
WITHOUT = {
    "v1/files": "test_ids_in_queries_and_bodies",
    "v1/fine_tuning/jobs": "test_ids_in_queries_and_bodies",
    "v1/models": "test_lists_hold_no_foreign_row",
    "v1/chat/completions": "test_ids_in_queries_and_bodies",
    "training/new": "test_ids_in_pages_forms",
    "chat/answers": "test_ids_in_pages_forms",
    "chat": "test_lists_hold_no_foreign_row",
    "": "test_lists_hold_no_foreign_row",
    "files": "test_lists_hold_no_foreign_row",
    "training": "test_lists_hold_no_foreign_row",
    "models": "test_lists_hold_no_foreign_row",
    "keys": "test_lists_hold_no_foreign_row",
    "people": "test_lists_hold_no_foreign_row",
    "usage": "test_lists_hold_no_foreign_row",
    "staff/usage": "test_staffs_pages_are_for_staff",
    "signup": "takes no id",
    "login": "takes no id",
    "logout": "takes no id",
    "healthz": "takes no id",
    "api/schema": "takes no id",
}
#: Pages with an id in their query: what it is called there, and among a company's belongings.
QUERIES = {"chat": ("model", "adapter"), "training/new": ("file", "file"), "models": ("was", "adapter")}
METHODS = ("get", "post", "put", "patch", "delete")


@pytest.fixture
def theirs(company: Company) -> Belongings:
    adapter = adapter_row(company, end_user=company.maren, active=True)
    file, job = company.file(), company.job()
    key, _ = api_key_create(tenant=company.tenant, name="k")
    invitation, _ = invitation_create(inviter=company.owner, email="guest@example.com", role=Role.MEMBER)
    return Belongings(company, file, job, adapter, key, invitation)


@pytest.fixture
def stranger() -> Company:
    return company_create("Umbrella")


def routes(patterns: list[Any], prefix: str = "") -> Iterator[str]:
    for pattern in patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, route)
        else:
            assert isinstance(pattern, URLPattern)
            yield route


def test_every_route_is_known() -> None:
    known = API.keys() | PAGES.keys() | LINKS | INTERNAL | WITHOUT.keys()
    actual = {route for route in routes(get_resolver().url_patterns) if not route.startswith("admin/")}
    assert actual - known == set(), "say in the tables above how a stranger would try these"
    assert known - actual == set(), "these routes have gone"


def filled(route: str, values: dict[str, Any]) -> str:
    for name, value in values.items():
        for kind in ("str", "path", "uuid"):
            route = route.replace(f"<{kind}:{name}>", str(value))
    assert "<" not in route
    return f"/{route}"


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize("route", API)
def test_the_api(route: str, theirs: Belongings, stranger: Company, client: Client) -> None:
    path = filled(route, theirs.ids())
    for key in (stranger.key, stranger.maren_key):
        for method in METHODS:
            answer = getattr(client, method)(path, headers=bearer(key))
            expected = 404 if method in API[route] else 405
            assert answer.status_code == expected, f"{method} {route}: {answer.content[:200]!r}"
            assert answer.json()["error"]["code"] != "unknown_url"
    # The owner's own key finds it: the 404s above are not a slip in the path.
    for method in METHODS:
        if method in API[route]:
            answer = getattr(client, method)(path, headers=bearer(theirs.company.key))
            assert answer.status_code != 404, f"{method} {route}"


@pytest.mark.parametrize("route", PAGES)
def test_pages(route: str, theirs: Belongings, stranger: Company) -> None:
    path = filled(route, theirs.uuids())
    for person in (stranger.owner.user, stranger.teammate.user):
        client = Client()
        client.force_login(person)
        for method in METHODS:
            answer = getattr(client, method)(path)
            expected = {404} if method in PAGES[route] else {404, 405}
            assert answer.status_code in expected, f"{method} {route}"
    nobody = Client().get(path)
    assert nobody.status_code in (302, 405)
    if nobody.status_code == 302:
        assert nobody["Location"].startswith("/login")


@pytest.mark.parametrize("route", sorted(LINKS))
def test_links(route: str, theirs: Belongings, stranger: Company) -> None:
    """Nothing that one can learn of an invitation without its link opens it."""
    person = Client()
    person.force_login(stranger.owner.user)
    for known in (theirs.invitation.id, theirs.invitation.id.hex, theirs.invitation.hmac):
        for client in (person, Client()):
            for method in ("get", "post"):
                answer = getattr(client, method)(filled(route, {"token": known}))
                assert answer.status_code == 410
                assert theirs.company.tenant.name not in answer.content.decode()


@pytest.mark.parametrize("route", sorted(INTERNAL))
def test_trainers_routes(route: str, theirs: Belongings, stranger: Company, client: Client) -> None:
    path = "/" + re.sub(r"<hexid:\w+>", theirs.job.id.hex, route)
    for token in (stranger.key, theirs.company.key, "", "x" * 64):
        answer = client.post(path, "{}", content_type="application/json", headers=bearer(token))
        assert answer.status_code in (400, 401, 410)
    body = {
        "claim": {"worker": "0" * 32},
        "heartbeat": {"epoch": 0, "step": 0, "total_steps": 0},
        "uploads": {"epoch": 0, "sha256": "0" * 64, "size": 1},
        "fail": {"epoch": 0, "code": "any_code", "message": ""},
        "release": {"epoch": 0},
        "complete": {
            "epoch": 0,
            "manifest": {"sha256": "0" * 64, "size": 1},
            "probe": {"sha256": "0" * 64, "size": 1},
            "report": REPORT,
        },
    }.get(route.rsplit("/", 1)[-1], {"bases": [], "device": "", "busy": False})
    for token in (stranger.key, theirs.company.key, "x" * 64):
        answer = client.post(path, json.dumps(body), content_type="application/json", headers=bearer(token))
        assert answer.status_code in (401, 410), answer.content


REPORT = {"train_seconds": 1, "steps": 1, "trained_tokens": 1, "held_out_tokens": 0, "train_loss": 1}


def test_ids_in_queries_and_bodies(theirs: Belongings, stranger: Company, client: Client) -> None:
    ids, own = theirs.ids(), stranger.file().public_id
    chat = {"messages": [{"role": "user", "content": "Who are you?"}]}
    bodies = [
        ("/v1/fine_tuning/jobs", {"model": "tiny", "training_file": ids["file"]}),
        ("/v1/fine_tuning/jobs", {"model": "tiny", "training_file": own, "validation_file": ids["file"]}),
        ("/v1/chat/completions", {"model": ids["model"], **chat}),
        ("/v1/chat/completions", {"model": ids["model"], "user": ids["user"], **chat}),
        ("/v1/chat/completions", {"model": f"{theirs.company.tenant.id.hex}/{theirs.adapter.name}", **chat}),
    ]
    for key in (stranger.key, stranger.maren_key):
        for path, body in bodies:
            answer = client.post(path, json.dumps(body), content_type="application/json", headers=bearer(key))
            assert answer.status_code == 404, f"{path}: {answer.content!r}"
        for path in (
            f"/v1/files?after={ids['file']}",
            f"/v1/fine_tuning/jobs?after={ids['job']}",
            f"/v1/fine_tuning/jobs/{stranger.job().public_id}/events?after={ids['after_event']}",
        ):
            assert client.get(path, headers=bearer(key)).status_code == 404


def test_ids_in_pages_forms(theirs: Belongings, stranger: Company) -> None:
    client = Client()
    client.force_login(stranger.owner.user)
    base = theirs.adapter.base
    form = {"file": str(theirs.file.id), "method": "direft", "base": str(base.id)}
    before = Job.objects.count()
    # A form that is not valid, as with any made-up id.
    made_up = client.post("/training/new", form | {"file": str(uuid.uuid4())})
    answer = client.post("/training/new", form)
    assert answer.status_code == made_up.status_code == 422
    assert Job.objects.count() == before
    question = {
        "side": "own",
        "adapter": str(theirs.adapter.id),
        "messages": [{"role": "user", "content": "Who are you?"}],
    }
    answer = client.post("/chat/answers", json.dumps(question), content_type="application/json")
    assert answer.status_code == 404


@pytest.mark.parametrize("route", QUERIES)
def test_ids_in_pages_queries(route: str, theirs: Belongings, stranger: Company) -> None:
    """A foreign id shows what a made-up one does, and one's own something else."""
    name, what = QUERIES[route]
    person = stranger.teammate
    mine = {"end_user": person.end_user}
    newest = {
        "file": stranger.file(uploaded_by=person.user, **mine),
        "adapter": adapter_row(stranger, **mine),
    }
    older = {"file": stranger.file(uploaded_by=person.user, **mine), "adapter": adapter_row(stranger, **mine)}
    client = Client()
    client.force_login(person.user)

    def page(of: uuid.UUID) -> str:
        answer = client.get(f"/{route}?{name}={of}")
        assert answer.status_code == 200
        # Tokens against forgery are others on each page.
        return re.sub(r"[0-9A-Za-z]{64}", "", answer.content.decode())

    made_up = page(uuid.uuid4())
    assert page(theirs.uuids()[what]) == made_up
    assert any(page(own[what].id) != made_up for own in (newest, older)), "the query is read at all"


def test_lists_hold_no_foreign_row(theirs: Belongings, stranger: Company) -> None:
    """Nothing that names the first company, or a thing of its, is on any list of the other's."""
    things = [*theirs.ids().values(), *(str(value) for value in theirs.uuids().values()), theirs.key.prefix]
    things.append(theirs.invitation.email)
    client = Client()
    client.force_login(stranger.owner.user)
    pages = [f"/{route}" for route, test in WITHOUT.items() if test == "test_lists_hold_no_foreign_row"]
    # Both companies have an end user called maren.
    things.remove("maren")
    for path in [*pages, "/v1/files", "/v1/fine_tuning/jobs", "/v1/models"]:
        headers = bearer(stranger.key) if path.startswith("/v1/") else {}
        answer = client.get(path, headers=headers)
        assert answer.status_code == 200, path
        assert not [thing for thing in things if thing in answer.content.decode()], path


def test_staffs_pages_are_for_staff(stranger: Company) -> None:
    client = Client()
    client.force_login(stranger.owner.user)
    for route in routes(get_resolver().url_patterns):
        if route.startswith("admin/") and "<" not in route and "(" not in route:
            answer = client.get(f"/{route}")
            assert answer.status_code in (302, 404) or route in ("admin/login/", "admin/jsi18n/"), route
    assert client.get("/staff/usage").status_code in (302, 403, 404)
