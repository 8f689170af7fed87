"""What a person trained for themselves is theirs: the company's key sees that it is there, and no more of it.

The same person in two ways: a teammate with an end user of their own, and one who logs in as an end user that the
tenant named (as the demo's member does), for whom the tenant's own uploads and models go on as ever.
"""

import json
from dataclasses import dataclass
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from tests.webapp.adapter_rows import adapter_row
from tests.webapp.company import Company, base_model, jsonl, talks
from webapp.adapters.models import Adapter
from webapp.chat.selection import answerer_select
from webapp.config.faults import NotAllowed, NotFound
from webapp.datasets.models import File
from webapp.jobs.models import Job, State
from webapp.tenants.keys import api_key_create, api_key_resolve
from webapp.tenants.models import EndUser, Membership, User
from webapp.tenants.scope import scope_of_key

pytestmark = pytest.mark.django_db
SUFFIX = "my-diary"


@dataclass
class Own:
    """A person's upload, a run that waits, a run that is done, and its adapter, which answers for them."""

    end_user: EndUser
    file: File
    waiting: Job
    adapter: Adapter
    key: str

    @property
    def user(self) -> str:
        return self.end_user.external_id


def own_of(company: Company, person: Membership) -> Own:
    made = {"end_user": person.end_user, "suffix": SUFFIX, "metadata": {"mood": SUFFIX}}
    file = company.file(uploaded_by=person.user, end_user=person.end_user)
    waiting = company.job(training_file=file, **made)
    adapter = adapter_row(company, training_file=file, active=True, **made)
    Adapter.objects.filter(id=adapter.id).update(public_name=f"ft:tiny:{SUFFIX}:{adapter.digest[:8]}")
    adapter.refresh_from_db()
    _, key = api_key_create(
        tenant=company.tenant, name="own", end_user=person.end_user, created_by=person.user
    )
    return Own(person.end_user, file, waiting, adapter, key)


@pytest.fixture(params=["an end user of their own", "one that the tenant named"])
def own(request: pytest.FixtureRequest, company: Company) -> Own:
    person = company.teammate
    if request.param == "one that the tenant named":
        Membership.objects.filter(id=person.id).update(end_user=company.maren)
        person.refresh_from_db()
    return own_of(company, person)


class Api:
    """The test client with a key."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.client = Client(headers={"authorization": f"Bearer {key}", "host": "localhost"})

    def get(self, path: str) -> Any:
        return self.client.get(path)

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        return self.client.post(path, json.dumps(body or {}), content_type="application/json")

    def select(self, model: str, user: str | None = None) -> Any:
        return answerer_select(scope=scope_of_key(api_key_resolve(self.key)), model=model, user=user)


@pytest.fixture
def companys(company: Company) -> Api:
    return Api(company.key)


def refused(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_the_company_cannot_name_or_delete_the_adapter(own: Own, companys: Api) -> None:
    assert own.adapter.public_name not in companys.get("/v1/models").content.decode()
    path = f"/v1/models/{own.adapter.public_name}"
    assert refused(companys.get(path)) == (404, "model_not_found")
    assert refused(companys.client.delete(path)) == (404, "model_not_found")
    own.adapter.refresh_from_db()
    assert own.adapter.deleted_at is None


def test_the_company_cannot_talk_to_the_adapter(own: Own, companys: Api) -> None:
    with pytest.raises(NotFound):
        companys.select(own.adapter.public_name)


def test_the_company_cannot_speak_as_a_person(company: Company, companys: Api) -> None:
    own = own_of(company, company.teammate)
    body = {"model": "tiny", "training_file": company.file().public_id, "metadata": {"user": own.user}}
    answer = companys.post("/v1/fine_tuning/jobs", body)
    assert refused(answer) == (403, "user_reserved")
    assert answer.json()["error"]["param"] == "metadata.user"
    upload = SimpleUploadedFile("a.jsonl", jsonl(talks()).read())
    form = {"purpose": "fine-tune", "user": own.user, "file": upload}
    assert refused(companys.client.post("/v1/files", form)) == (403, "user_reserved")
    with pytest.raises(NotAllowed):
        companys.select("tiny", own.user)
    made_up = {**body, "metadata": {"user": "member:nobody"}}
    assert refused(companys.post("/v1/fine_tuning/jobs", made_up)) == (403, "user_reserved")
    assert not EndUser.objects.filter(external_id="member:nobody").exists()


def test_for_the_company_that_end_user_has_no_adapter_yet(company: Company, companys: Api) -> None:
    """Where the tenant named the end user it may chat for them, but with what it made itself."""
    Membership.objects.filter(id=company.teammate.id).update(end_user=company.maren)
    company.teammate.refresh_from_db()
    own = own_of(company, company.teammate)
    assert companys.select("tiny", "maren").adapter is None
    assert Api(own.key).select("tiny").adapter == own.adapter.id
    made = adapter_row(company, end_user=company.maren, active=True)
    assert companys.select("tiny", "maren").adapter == made.id
    assert Api(own.key).select(made.public_name).adapter == made.id


def test_a_person_talks_to_what_the_company_trained_for_them(company: Company, companys: Api) -> None:
    """As in the demo: the tenant uploads and trains for an end user, who logs in and finds their model."""
    Membership.objects.filter(id=company.teammate.id).update(end_user=company.maren)
    made = adapter_row(company, end_user=company.maren, active=True)
    assert companys.select("tiny", "maren").adapter == made.id
    for person in (company.teammate, company.owner):
        browser = Client(headers={"host": "localhost"})
        browser.force_login(person.user)
        for page in ("/chat", "/models"):
            assert str(made.id) in browser.get(page).content.decode(), page


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume"])
def test_the_company_cannot_steer_a_run(own: Own, companys: Api, verb: str) -> None:
    Job.objects.filter(id=own.waiting.id).update(state=State.QUEUED)
    path = f"/v1/fine_tuning/jobs/{own.waiting.public_id}/{verb}"
    assert refused(companys.post(path)) == (403, "content_private")
    own.waiting.refresh_from_db()
    assert own.waiting.state == State.QUEUED
    assert Api(own.key).post(path).status_code == 200


def test_the_company_sees_a_runs_state_and_counts(own: Own, companys: Api) -> None:
    seen = companys.get(f"/v1/fine_tuning/jobs/{own.waiting.public_id}").json()
    assert (seen["status"], seen["progress"]["step"]) == ("validating_files", 0)
    done = own.adapter.job.public_id
    for path in (
        "/v1/fine_tuning/jobs",
        f"/v1/fine_tuning/jobs/{done}",
        f"/v1/fine_tuning/jobs/{done}/events",
        f"/v1/fine_tuning/jobs/{done}/checkpoints",
    ):
        assert SUFFIX not in companys.get(path).content.decode(), path
    assert companys.get(f"/v1/fine_tuning/jobs?metadata[mood]={SUFFIX}").json()["data"] == []


def test_the_company_cannot_delete_the_upload(own: Own, companys: Api) -> None:
    Job.objects.filter(id=own.waiting.id).update(state=State.CANCELLED)
    assert refused(companys.client.delete(f"/v1/files/{own.file.public_id}")) == (403, "content_private")
    assert Api(own.key).client.delete(f"/v1/files/{own.file.public_id}").status_code == 200


def test_the_person_can(own: Own) -> None:
    mine = Api(own.key)
    name = own.adapter.public_name
    assert name in mine.get("/v1/models").content.decode()
    assert mine.get(f"/v1/fine_tuning/jobs/{own.adapter.job.public_id}").json()["fine_tuned_model"] == name
    assert mine.get(f"/v1/fine_tuning/jobs?metadata[mood]={SUFFIX}").json()["data"] != []
    assert mine.select(name).adapter == own.adapter.id
    assert mine.client.delete(f"/v1/models/{name}").status_code == 200


def test_what_a_persons_own_key_uploads_is_theirs_too(company: Company, companys: Api) -> None:
    own = own_of(company, company.teammate)
    base_model()
    upload = SimpleUploadedFile("a.jsonl", jsonl(talks()).read())
    made = Api(own.key).client.post("/v1/files", {"purpose": "fine-tune", "file": upload}).json()
    assert File.objects.get(id=made["id"].removeprefix("file-")).uploaded_by == company.teammate.user
    assert refused(companys.get(f"/v1/files/{made['id']}/content")) == (403, "content_private")
    job = Api(own.key).post("/v1/fine_tuning/jobs", {"model": "tiny", "training_file": made["id"]})
    assert job.status_code == 200, job.content


def test_the_key_of_a_login_that_was_switched_off(own: Own) -> None:
    assert Api(own.key).get("/v1/models").status_code == 200
    User.objects.update(is_active=False)
    assert refused(Api(own.key).get("/v1/models")) == (401, "invalid_api_key")


def test_staff_read_no_name_that_a_person_chose(own: Own) -> None:
    staff = Client(headers={"host": "localhost"})
    staff.force_login(User.objects.create_superuser("staff@example.com", "a long enough phrase"))
    for page in (
        "adapters/adapter/",
        f"adapters/adapter/{own.adapter.id}/change/",
        "jobs/job/",
        f"jobs/job/{own.waiting.id}/change/",
        "tenants/enduser/",
        "jobs/jobevent/",
    ):
        answer = staff.get(f"/admin/{page}")
        assert answer.status_code == 200, page
        assert SUFFIX not in answer.content.decode(), page
