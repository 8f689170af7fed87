"""One Idempotency-Key, one effect, one answer."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import httpx
import pytest
from django.db.models.functions import Now

from tests.webapp.company import Company, base_model
from webapp.api.models import IdempotentRequest
from webapp.datasets.models import File
from webapp.jobs.models import Job
from webapp.jobs.sweeper import answers_forget

pytestmark = pytest.mark.django_db(transaction=True)


def post(web: httpx.Client, company: Company, key: str, **body: object) -> httpx.Response:
    headers = {"Authorization": f"Bearer {company.key}", "Idempotency-Key": key}
    return web.post("/v1/fine_tuning/jobs", json={"model": "tiny", **body}, headers=headers)


@pytest.mark.slow
def test_twenty_at_once_are_one(web: httpx.Client, company: Company) -> None:
    base_model()
    file = company.file().public_id
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: post(web, company, "k", training_file=file), range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("idempotent-replayed" in answer.headers for answer in answers) == 19
    assert Job.objects.count() == 1


def test_another_body_is_refused(web: httpx.Client, company: Company) -> None:
    base_model()
    file = company.file().public_id
    post(web, company, "k", training_file=file)
    answer = post(web, company, "k", training_file=file, seed=1)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "idempotency_key_reused")
    assert answer.headers["x-should-retry"] == "false"


def test_a_refused_request_may_be_mended(web: httpx.Client, company: Company) -> None:
    base_model()
    assert post(web, company, "k", training_file="file-none").status_code == 404
    assert post(web, company, "k", training_file=company.file().public_id).status_code == 200


def test_keys_of_two_companies_do_not_meet(
    web: httpx.Client, company: Company, other_company: Company
) -> None:
    base_model()
    ids = {
        post(web, each, "k", training_file=each.file().public_id).json()["id"]
        for each in (company, other_company)
    }
    assert len(ids) == 2


def test_uploads(web: httpx.Client, company: Company) -> None:
    headers = {"Authorization": f"Bearer {company.key}", "Idempotency-Key": "k"}

    def upload(content: bytes) -> httpx.Response:
        return web.post(
            "/v1/files", data={"purpose": "fine-tune"}, files={"file": ("a.jsonl", content)}, headers=headers
        )

    row = b'{"prompt": "q", "completion": "a"}\n'
    assert upload(row).json() == upload(row).json()
    assert upload(row * 2).status_code == 422
    assert File.objects.count() == 1


def test_answers_are_kept_for_a_day(web: httpx.Client, company: Company) -> None:
    base_model()
    post(web, company, "k", training_file=company.file().public_id)
    answers_forget()
    assert IdempotentRequest.objects.count() == 1
    IdempotentRequest.objects.update(created_at=Now() - timedelta(days=2))
    answers_forget()
    assert not IdempotentRequest.objects.exists()
