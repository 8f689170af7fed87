"""Requests that newcomers send: the answer says what to send instead."""

import json
from typing import Any

import pytest
from django.test import Client

from tests.webapp.company import Company

pytestmark = pytest.mark.django_db


@pytest.fixture
def companys(company: Company) -> Client:
    return Client(headers={"authorization": f"Bearer {company.key}", "host": "localhost"})


def fault(answer: Any) -> dict[str, Any]:
    return answer.json()["error"]


def test_a_files_name_in_place_of_the_file(companys: Client) -> None:
    answer = companys.post("/v1/files", {"purpose": "fine-tune", "file": "my.jsonl"})
    assert (answer.status_code, fault(answer)["code"], fault(answer)["param"]) == (
        400,
        "missing_file",
        "file",
    )
    assert "came as text" in fault(answer)["message"]
    assert "-F file=@my.jsonl" in fault(answer)["message"]


def test_json_in_place_of_a_form(companys: Client) -> None:
    answer = companys.post("/v1/files", "{}", content_type="application/json")
    assert answer.status_code == 415
    assert fault(answer)["message"].startswith("Send multipart/form-data")


def test_a_form_that_breaks_off(companys: Client) -> None:
    answer = companys.post("/v1/files", b"x", content_type="multipart/form-data; boundary=")
    assert (answer.status_code, fault(answer)["code"]) == (400, "bad_body")
    assert "send multipart/form-data" in fault(answer)["message"]


def test_an_empty_user_is_named_as_the_request_names_it(company: Company, companys: Client) -> None:
    body = {"model": company.job().base.name, "training_file": company.file().public_id}
    answer = companys.post(
        "/v1/fine_tuning/jobs", json.dumps(body | {"metadata": {"user": ""}}), content_type="application/json"
    )
    assert (answer.status_code, fault(answer)["code"], fault(answer)["param"]) == (
        400,
        "bad_user",
        "metadata.user",
    )


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/nothing", "/api", "/internal"])
def test_addresses_of_the_api_answer_in_json(companys: Client, path: str) -> None:
    answer = companys.get(path)
    assert (answer.status_code, fault(answer)["code"]) == (404, "unknown_url")


@pytest.mark.parametrize("path", ["/v1beta", "/apiary"])
def test_others_are_pages(companys: Client, path: str) -> None:
    answer = companys.get(path)
    assert answer.status_code == 404
    assert answer["content-type"].startswith("text/html")
