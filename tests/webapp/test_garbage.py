"""Bytes go when no row needs them, and not before."""

from datetime import timedelta

import httpx
import pytest
from django.db.models.functions import Now

from adapters_store.s3 import manifest_key, object_key
from tests.webapp.company import Company, talks
from tests.webapp.played_engine import PlayedEngine
from tests.webapp.played_trainer import PlayedTrainer
from tests.webapp.test_transitions import running
from webapp.adapters import adapters
from webapp.adapters.adapters import adapter_activate, adapter_deactivate, adapter_delete
from webapp.adapters.models import Adapter
from webapp.config.faults import NotFound
from webapp.datasets.files import file_delete
from webapp.datasets.models import File, ObjectRemoval
from webapp.datasets.storage import store
from webapp.jobs.gate import gate
from webapp.jobs.lifecycle import job_cancel
from webapp.jobs.sweeper import files_expire, objects_sweep

pytestmark = pytest.mark.django_db(transaction=True)


def there(company: Company, sha256: str) -> bool:
    return store().size(object_key(company.tenant.id.hex, sha256)) is not None


def sweep() -> None:
    ObjectRemoval.objects.update(not_before=Now() - timedelta(seconds=1))
    objects_sweep()
    assert not ObjectRemoval.objects.exists()


def test_a_deleted_file_goes(company: Company) -> None:
    file = company.file()
    sweep()
    assert there(company, file.sha256)
    assert there(company, file.conversations_sha256)
    file_delete(file=file)
    sweep()
    assert not there(company, file.sha256)
    assert not there(company, file.conversations_sha256)


def test_equal_bytes_stay_while_another_upload_needs_them(company: Company) -> None:
    first, second = company.file(), company.file()
    file_delete(file=first)
    sweep()
    assert there(company, second.sha256)


def test_what_a_cancelled_job_uploaded_goes(company: Company, web: httpx.Client) -> None:
    job, trainer = running(company, web)
    checkpoint = trainer.put(b"state one")
    trainer.heartbeat(checkpoint=checkpoint | {"step": 1})
    newer = trainer.put(b"state two")
    trainer.heartbeat(checkpoint=newer | {"step": 2})
    sweep()
    assert not there(company, checkpoint["sha256"]), "the checkpoint before the last"
    assert there(company, newer["sha256"])
    orphan = trainer.put(b"uploaded and never mentioned again")
    job_cancel(job=job)
    sweep()
    assert not there(company, newer["sha256"])
    assert not there(company, orphan["sha256"])
    assert there(company, job.training_file.conversations_sha256), "the file still has them"


def finished(company: Company, web: httpx.Client, engine: PlayedEngine) -> Adapter:
    job, trainer = running(company, web, end_user=company.maren)
    trainer.complete(trainer.adapter())
    gate(job=job.id, asked=engine.engine)
    return Adapter.objects.get(job=job)


def test_a_deleted_adapter_goes(
    company: Company, web: httpx.Client, played_engine: PlayedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = finished(company, web, played_engine)
    sweep()
    assert all(there(company, sha256) for sha256 in adapter.object_digests)
    engine = type(
        "S", (), {"engine_url": played_engine.engine.url, "engine_key": adapters.settings().engine_key}
    )
    monkeypatch.setattr(adapters, "settings", lambda: engine)
    adapter_delete(adapter=adapter)
    company.maren.refresh_from_db()
    assert company.maren.active_adapter is None
    assert played_engine.deleted == [f"/v1/adapters/{company.tenant.id.hex}/{adapter.name}"]
    sweep()
    assert not any(there(company, sha256) for sha256 in adapter.object_digests)
    assert store().size(manifest_key(company.tenant.id.hex, adapter.name)) is None
    with pytest.raises(NotFound):
        adapter_activate(adapter=adapter)


def test_two_jobs_with_the_same_result_share_bytes(
    company: Company, web: httpx.Client, played_engine: PlayedEngine
) -> None:
    first, second = (finished(company, web, played_engine) for _ in range(2))
    assert first.name == second.name
    adapter_delete(adapter=first)
    sweep()
    assert store().size(manifest_key(company.tenant.id.hex, second.name))
    assert all(there(company, sha256) for sha256 in second.object_digests)


def test_activating_and_putting_aside(
    company: Company, web: httpx.Client, played_engine: PlayedEngine
) -> None:
    adapter = finished(company, web, played_engine)
    adapter_deactivate(adapter=adapter)
    company.maren.refresh_from_db()
    assert company.maren.active_adapter is None
    adapter_activate(adapter=adapter)
    company.maren.refresh_from_db()
    assert company.maren.active_adapter == adapter


def test_files_expire(company: Company) -> None:
    file = company.file(expires_after=timedelta(hours=1))
    files_expire()
    assert File.objects.get(id=file.id).deleted_at is None
    File.objects.update(expires_at=Now() - timedelta(seconds=1))
    files_expire()
    assert File.objects.get(id=file.id).deleted_at is not None


def test_an_upload_that_was_never_finished_goes(company: Company) -> None:
    from webapp.datasets.storage import object_put
    from webapp.datasets.validate import HashedFile

    part = HashedFile()
    part.write(b"its process was killed before the row was written")
    object_put(tenant=company.tenant.id.hex, file=part.file, sha256=part.sha256, size=part.size)
    objects_sweep()
    assert there(company, part.sha256), "its row may still come"
    sweep()
    assert not there(company, part.sha256)


def test_a_trainer_may_upload_what_is_just_going(company: Company, web: httpx.Client) -> None:
    """Equal bytes of a deleted file are on the garbage list while a job uploads them: they stay."""
    file = company.file(talks(2))
    _, trainer = running(company, web)
    data = store().get(object_key(company.tenant.id.hex, file.sha256), 10**6)
    file_delete(file=file)
    assert isinstance(trainer, PlayedTrainer)
    trainer.put(data)
    sweep()
    assert there(company, file.sha256)
