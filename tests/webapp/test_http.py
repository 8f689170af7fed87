"""What every answer has, whatever the route."""

import json
import logging
import socket

import httpx
import pytest

from tests.webapp.company import Company
from webapp.config.settings import settings

pytestmark = pytest.mark.django_db(transaction=True)


def test_every_response_names_its_request(web: httpx.Client, company: Company) -> None:
    for path in ("/healthz", "/v1/models", "/v1/nothing", "/login", "/static/dashboard/attune.css"):
        assert web.get(path).headers["x-request-id"].startswith("req_")
    assert (
        web.get("/healthz", headers={"x-request-id": "client-chosen-1"}).headers["x-request-id"]
        == "client-chosen-1"
    )
    assert (
        web.get("/healthz", headers={"x-request-id": "a b\tc" * 9}).headers["x-request-id"].startswith("req_")
    )


def test_pages_are_guarded(web: httpx.Client) -> None:
    headers = web.get("/login").headers
    assert "script-src" not in headers["content-security-policy"]
    assert headers["content-security-policy"].startswith("default-src 'self';")
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"


def test_health(web: httpx.Client) -> None:
    assert web.get("/healthz").json() == {"status": "ok"}


def test_a_slash_is_never_added(web: httpx.Client, company: Company) -> None:
    answer = web.post("/v1/files/", headers={"Authorization": f"Bearer {company.key}"})
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "unknown_url"


def test_bodies_are_capped_while_they_arrive(web: httpx.Client, company: Company) -> None:
    """The declared length is refused at once, an undeclared one when it has gone too far."""
    limit = settings().max_upload_bytes + 1_000_000
    headers = {"Authorization": f"Bearer {company.key}"}
    with socket.create_connection((web.base_url.host, web.base_url.port)) as client:
        client.sendall(
            f"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: {limit + 1}\r\n"
            "X-Request-Id: client-chosen-1\r\n\r\n".encode()
        )
        refused = client.recv(4000)
        assert refused.startswith(b"HTTP/1.1 413")
        assert b"\r\nx-request-id: client-chosen-1\r\n" in refused

    sent = 0

    def endless():
        nonlocal sent
        while sent < 3 * limit:
            sent += 1_000_000
            yield b"x" * 1_000_000

    try:
        answer = web.post("/v1/files", headers=headers, content=endless())
        assert answer.status_code == 413
    except httpx.TransportError:
        pass  # the server closed the connection on a client that went on sending
    assert sent < 2 * limit


def test_json_bodies_are_small(web: httpx.Client, company: Company) -> None:
    body = json.dumps({"model": "x" * 5_000_000})
    headers = {"Authorization": f"Bearer {company.key}", "content-type": "application/json"}
    answer = web.post("/v1/fine_tuning/jobs", content=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"model": NaN}', b"\xff", b"[" * 100_000, b'{"model":"\\ud800"}']
)
def test_hostile_json(web: httpx.Client, company: Company, body: bytes) -> None:
    headers = {"Authorization": f"Bearer {company.key}", "content-type": "application/json"}
    answer = web.post("/v1/fine_tuning/jobs", content=body, headers=headers)
    assert answer.status_code == 400


@pytest.mark.parametrize(
    "query", ["metadata[k]=a%00b", "metadata[a%00b]=v", "metadata[]=v", "limit=0", "after=%00"]
)
def test_hostile_filters(web: httpx.Client, company: Company, query: str) -> None:
    answer = web.get(f"/v1/fine_tuning/jobs?{query}", headers={"Authorization": f"Bearer {company.key}"})
    assert answer.status_code in (400, 404)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_hostile_names_of_models(web: httpx.Client, company: Company, method: str) -> None:
    for name in ("%00", "a%00b", "x" * 3000):
        answer = web.request(method, f"/v1/models/{name}", headers={"Authorization": f"Bearer {company.key}"})
        assert answer.status_code == 404, name


def test_more_fields_or_files_than_anything_has(web: httpx.Client, company: Company) -> None:
    headers = {"Authorization": f"Bearer {company.key}"}
    fields = {f"field{number}": "x" for number in range(1100)}
    files = [("file", (f"{number}.jsonl", b"{}")) for number in range(110)]
    for answer in (
        web.get("/v1/files", params=fields, headers=headers),
        web.get("/v1/fine_tuning/jobs", params=fields, headers=headers),
        web.post("/v1/files", data=fields, files={"file": b"{}"}, headers=headers),
        web.post("/v1/files", data={"purpose": "fine-tune"}, files=files, headers=headers),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request"), answer.text


def test_the_same_fault_has_the_same_code_everywhere(web: httpx.Client, company: Company) -> None:
    headers = {"Authorization": f"Bearer {company.key}", "content-type": "application/json"}
    for path in ("/v1/fine_tuning/jobs", "/v1/chat/completions"):
        for body, code in (
            (b"{", "bad_json"),
            (b"[]", "bad_json"),
            (b'{"x": 1}', "missing_required_parameter"),
        ):
            answer = web.post(path, content=body, headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, code), path


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "a\x00b.jsonl", "\u202egnp.exe", "x" * 5000, "", "ä.jsonl"]
)
def test_hostile_filenames(web: httpx.Client, company: Company, name: str) -> None:
    boundary = "b"
    disposition = "Content-Disposition: form-data; name="
    head = f'--b\r\n{disposition}"purpose"\r\n\r\nfine-tune\r\n--b\r\n{disposition}"file"; filename="{name}"\r\n\r\n'
    body = head.encode() + b'{"prompt": "q", "completion": "a"}\n\r\n--b--\r\n'
    headers = {
        "Authorization": f"Bearer {company.key}",
        "content-type": f"multipart/form-data; boundary={boundary}",
    }
    answer = web.post("/v1/files", content=body, headers=headers)
    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 200:
        assert "/" not in answer.json()["filename"]
        assert len(answer.json()["filename"]) <= 255


def test_unknown_form_fields_are_refused(web: httpx.Client, company: Company) -> None:
    answer = web.post(
        "/v1/files",
        data={"purpose": "fine-tune", "tenant": "x"},
        files={"file": b"{}"},
        headers={"Authorization": f"Bearer {company.key}"},
    )
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tenant")


def test_the_schema_documents_every_route(web: httpx.Client) -> None:
    schema = web.get("/api/schema").json()
    assert set(schema["paths"]) == {
        "/v1/files",
        "/v1/files/{file}",
        "/v1/files/{file}/content",
        "/v1/files/{file}/report",
        "/v1/fine_tuning/jobs",
        "/v1/fine_tuning/jobs/{job}",
        "/v1/fine_tuning/jobs/{job}/cancel",
        "/v1/fine_tuning/jobs/{job}/pause",
        "/v1/fine_tuning/jobs/{job}/resume",
        "/v1/fine_tuning/jobs/{job}/events",
        "/v1/fine_tuning/jobs/{job}/checkpoints",
        "/v1/models",
        "/v1/models/{model}",
        "/v1/chat/completions",
    }
    named = json.dumps(schema)
    for part in schema["components"]["schemas"]:
        assert f"#/components/schemas/{part}" in named, part
    missing = {each.split('"')[0] for each in named.split("#/components/schemas/")[1:]} - schema[
        "components"
    ]["schemas"].keys()
    assert not missing


def test_logs_hold_no_content(web: httpx.Client, company: Company, caplog: pytest.LogCaptureFixture) -> None:
    secret = "the-neighbours-secret"
    row = json.dumps({"prompt": secret, "completion": secret})
    caplog.set_level(logging.DEBUG)
    headers = {"Authorization": f"Bearer {company.key}"}
    web.post("/v1/files", data={"purpose": "fine-tune"}, files={"file": row.encode()}, headers=headers)
    web.post(
        "/v1/files", data={"purpose": "fine-tune"}, files={"file": f"bad {secret}".encode()}, headers=headers
    )
    web.post("/v1/fine_tuning/jobs", json={"model": secret}, headers=headers)
    ours = [
        record.getMessage() for record in caplog.records if not record.name.startswith(("httpcore", "httpx"))
    ]
    assert ours
    assert not [line for line in ours if secret in line or company.key in line]
