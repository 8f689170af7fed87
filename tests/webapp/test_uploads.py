"""An upload takes its time: without a database connection, not too many at once, and leaving nothing behind."""

import tempfile
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.conf import settings as django_settings
from django.db import connection
from psycopg_pool import PoolTimeout

from adapters_store.s3 import object_key
from tests.webapp.company import Company, jsonl, talks
from tests.webapp.played_engine import PlayedEngine
from tests.webapp.test_garbage import sweep
from tests.webapp.test_transitions import running
from webapp.api import files as files_api
from webapp.config.faults import Unavailable
from webapp.datasets import intake, storage
from webapp.datasets.models import File, ObjectRemoval
from webapp.datasets.storage import store
from webapp.jobs import gate as gates

pytestmark = pytest.mark.django_db(transaction=True)
KEYED = [{}, {"Idempotency-Key": "k"}]


def upload(web: httpx.Client, company: Company, headers: dict[str, str], count: int = 3) -> httpx.Response:
    return web.post(
        "/v1/files",
        data={"purpose": "fine-tune"},
        files={"file": ("a.jsonl", jsonl(talks(count)).read())},
        headers={"Authorization": f"Bearer {company.key}", **headers},
    )


@pytest.mark.parametrize("headers", KEYED)
def test_no_connection_is_held_meanwhile(
    company: Company, web: httpx.Client, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]
) -> None:
    held: list[bool] = []
    validate, put = intake.validate, storage._put

    def noting(work: Any) -> Any:
        def noted(*args: Any, **named: Any) -> Any:
            held.append(connection.connection is not None)
            return work(*args, **named)

        return noted

    monkeypatch.setattr(intake, "validate", noting(validate))
    monkeypatch.setattr(storage, "_put", noting(put))
    assert upload(web, company, headers).status_code == 200
    assert held == [False, False, False], "validated, the upload put, its conversations put"


def test_only_so_many_are_checked_at_once(
    company: Company, web: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "_checking", threading.BoundedSemaphore(1))
    monkeypatch.setattr(intake, "_PATIENCE_SECONDS", 0.1)
    intake._checking.acquire()
    answer = upload(web, company, {})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "uploads_busy")
    assert answer.headers["retry-after"]
    intake._checking.release()
    assert upload(web, company, {}).status_code == 200
    assert upload(web, company, {}).status_code == 200, "each gives its place back"


@pytest.mark.slow
def test_when_all_connections_are_taken(
    company: Company, web: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []
    connection.ensure_connection()
    monkeypatch.setattr(connection.pool, "timeout", 0.2)
    try:
        with pytest.raises(PoolTimeout):
            while True:
                held.append(connection.pool.getconn())
        answer = web.get("/v1/models", headers={"Authorization": f"Bearer {company.key}"})
        trainer = web.post(
            "/internal/jobs/" + "0" * 32 + "/claim",
            json={"worker": "0" * 32},
            headers={"Authorization": "Bearer x"},
        )
        page = web.get("/", headers={"cookie": "sessionid=somebody"})
    finally:
        for each in held:
            connection.pool.putconn(each)
    for refused in (answer, trainer):
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "database_busy")
        assert refused.headers["retry-after"]
    assert (page.status_code, page.headers["retry-after"]) == (503, "2")


@pytest.mark.parametrize("headers", KEYED)
def test_bytes_without_a_row_go(
    company: Company, web: httpx.Client, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]
) -> None:
    """The process dies, or storage goes away, between the bytes and the row."""

    def dies(**_: Any) -> File:
        raise Unavailable("away", code="storage_unavailable")

    monkeypatch.setattr(files_api, "file_keep", dies)
    assert upload(web, company, headers).status_code == 503
    keys = set(ObjectRemoval.objects.values_list("key", flat=True))
    assert len(keys) == 2
    assert all(store().size(key) for key in keys)
    sweep()
    assert not any(store().size(key) for key in keys)
    monkeypatch.undo()
    assert upload(web, company, headers).status_code == 200
    sweep()
    file = File.objects.get()
    assert store().size(object_key(company.tenant.storage_id, file.sha256)) == file.size


def test_results_without_a_row_go(
    company: Company, web: httpx.Client, played_engine: PlayedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, trainer = running(company, web)
    trainer.complete(trainer.adapter())
    put: list[Any] = []
    right = gates.objects_put

    def noted(**said: Any) -> None:
        put.extend(part.sha256 for part in said["parts"])
        right(**said)

    def dies(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(gates, "objects_put", noted)
    monkeypatch.setattr(gates, "job_succeed", dies)
    with pytest.raises(ZeroDivisionError):
        gates.gate(job=job.id, asked=played_engine.engine)
    [sha256] = put
    assert store().size(object_key(company.tenant.storage_id, sha256)) is not None
    sweep()
    assert store().size(object_key(company.tenant.storage_id, sha256)) is None


def test_a_large_upload_has_no_name_on_disk(
    company: Company, web: httpx.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Or it would stay there when the process is killed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    named: list[Path] = []
    validate = intake.validate

    def looking(file: Any, asked: Any, **more: Any) -> Any:
        named.extend(tmp_path.iterdir())
        return validate(file, asked, **more)

    monkeypatch.setattr(intake, "validate", looking)
    large = "x" * django_settings.FILE_UPLOAD_MAX_MEMORY_SIZE
    answer = web.post(
        "/v1/files",
        data={"purpose": "fine-tune"},
        files={"file": ("a.jsonl", jsonl([*talks(2), {"large": large}]).read())},
        headers={"Authorization": f"Bearer {company.key}"},
    )
    assert answer.json()["report"]["good"] == 2
    assert named == []
