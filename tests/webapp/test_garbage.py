"""Bytes go when no row needs them, and not before."""

import hashlib
import threading
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from django.db import connection, transaction
from django.db.models.functions import Now

from adapters_store.errors import StorageUnavailable
from adapters_store.manifest import Manifest
from adapters_store.s3 import ObjectStore, manifest_key, object_key
from tests.webapp.company import Company, talks
from tests.webapp.played_engine import PlayedEngine
from tests.webapp.played_trainer import PlayedTrainer
from tests.webapp.test_transitions import running
from webapp.adapters.adapters import adapter_activate, adapter_deactivate, adapter_delete
from webapp.adapters.forgetting import forgettings_send
from webapp.adapters.models import Adapter, Forgetting
from webapp.config.faults import NotFound
from webapp.datasets.files import file_delete
from webapp.datasets.models import File, ObjectRemoval
from webapp.datasets.storage import PUT_SECONDS, store
from webapp.engine import Engine
from webapp.jobs.gate import gate
from webapp.jobs.lifecycle import job_cancel
from webapp.jobs.models import Job
from webapp.jobs.sweeper import files_expire, objects_sweep
from webapp.tenants.models import EndUser

pytestmark = pytest.mark.django_db(transaction=True)


def there(company: Company, sha256: str) -> bool:
    return store().size(object_key(company.tenant.id.hex, sha256)) is not None


def sweep() -> None:
    """All of the list, whenever it is due."""
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


@pytest.mark.slow
def test_a_deleted_adapter_goes(company: Company, web: httpx.Client, played_engine: PlayedEngine) -> None:
    adapter = finished(company, web, played_engine)
    sweep()
    assert all(there(company, sha256) for sha256 in adapter.object_digests)
    adapter_delete(adapter=adapter)
    company.maren.refresh_from_db()
    assert company.maren.active_adapter is None
    sweep()
    assert not any(there(company, sha256) for sha256 in adapter.object_digests)
    assert store().size(manifest_key(company.tenant.id.hex, adapter.name)) is None
    with pytest.raises(NotFound):
        adapter_activate(adapter=adapter)


def forgotten(company: Company, engine: PlayedEngine, name: str) -> bool:
    """Whether the engine was told, once its manifest was out of storage."""
    forgettings_send(asked=engine.engine)
    assert store().size(manifest_key(company.tenant.id.hex, name)) is None
    return f"/v1/adapters/{company.tenant.id.hex}/{name}" in engine.deleted


@pytest.mark.slow
def test_the_engine_forgets_a_deleted_adapter(
    company: Company, web: httpx.Client, played_engine: PlayedEngine
) -> None:
    adapter = finished(company, web, played_engine)
    adapter_delete(adapter=adapter)
    forgettings_send(asked=played_engine.engine)
    assert played_engine.deleted == [], "while its manifest is in storage, the engine would fetch it again"
    sweep()
    assert not forgettings_send(asked=Engine("http://127.0.0.1:9", "k"))
    played_engine.forgets = 500
    assert forgettings_send(asked=played_engine.engine)
    assert played_engine.deleted == [], "it is set aside"
    Forgetting.objects.update(not_before=Now() - timedelta(seconds=1))
    forgettings_send(asked=played_engine.engine)
    assert Forgetting.objects.exists(), "an engine that fails is told again"
    played_engine.forgets, played_engine.in_use = 200, 1
    Forgetting.objects.update(not_before=Now() - timedelta(seconds=1))
    assert forgotten(company, played_engine, adapter.name)
    assert Forgetting.objects.exists(), "what a prompt needed is still there"
    played_engine.forgets = 404
    Forgetting.objects.update(not_before=Now() - timedelta(seconds=1))
    assert forgotten(company, played_engine, adapter.name)
    assert not Forgetting.objects.exists()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["cancel", "refuse"])
def test_the_engine_forgets_what_it_only_tried(
    company: Company, web: httpx.Client, played_engine: PlayedEngine, how: str
) -> None:
    job, trainer = running(company, web)
    trainer.complete(trainer.adapter())
    name = Manifest.model_validate(Job.objects.get(id=job.id).manifest).name
    played_engine.refuse = (503, "adapter_memory_full") if how == "cancel" else (422, "adapter_corrupt")
    gate(job=job.id, asked=played_engine.engine)
    if how == "cancel":
        job_cancel(job=job)
    sweep()
    assert forgotten(company, played_engine, name)


def test_one_object_that_storage_keeps(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [company.file(talks(count)) for count in (2, 3)]
    sweep()
    for file in files:
        file_delete(file=file)
    right, stuck = ObjectStore.delete, object_key(company.tenant.id.hex, files[0].sha256)

    def delete(self: ObjectStore, key: str) -> None:
        if key == stuck:
            raise StorageUnavailable("Object storage answered with the error AccessDenied.")
        right(self, key)

    monkeypatch.setattr(ObjectStore, "delete", delete)
    for _ in range(2):
        objects_sweep()
    assert there(company, files[0].sha256)
    assert not there(company, files[1].sha256)
    monkeypatch.undo()
    sweep()
    assert not there(company, files[0].sha256)


def test_an_upload_that_lands_after_its_jobs_end_goes(company: Company, web: httpx.Client) -> None:
    job, trainer = running(company, web)
    data = b"sent while the job was cancelled"
    sha256 = hashlib.sha256(data).hexdigest()
    slot = trainer._say("uploads", {"sha256": sha256, "size": len(data)}).json()
    assert int(parse_qs(urlsplit(slot["url"]).query)["X-Amz-Expires"][0]) == PUT_SECONDS
    job_cancel(job=job)
    objects_sweep()
    httpx.put(slot["url"], content=data, headers=slot["headers"], trust_env=False).raise_for_status()
    objects_sweep()
    assert there(company, sha256), "uploads by such a URL may still be under way"
    sweep()
    assert not there(company, sha256)


@pytest.mark.slow
def test_deleting_waits_for_the_end_user_first(
    company: Company, web: httpx.Client, played_engine: PlayedEngine
) -> None:
    """The order in which publishing and activating lock: with any other, two of them could wait for each other."""
    adapter = finished(company, web, played_engine)

    def delete() -> None:
        adapter_delete(adapter=adapter)
        connection.close()

    with transaction.atomic():
        EndUser.objects.select_for_update().get(id=company.maren.id)
        thread = threading.Thread(target=delete)
        thread.start()
        thread.join(1)
        assert thread.is_alive()
        Adapter.objects.select_for_update(nowait=True).get(id=adapter.id)
    thread.join(10)
    adapter.refresh_from_db()
    assert adapter.deleted_at is not None


@pytest.mark.slow
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
    job = company.job(training_file=file)
    File.objects.update(expires_at=Now() - timedelta(seconds=1))
    files_expire()
    assert File.objects.get(id=file.id).deleted_at is None, "a job trains on it"
    job_cancel(job=job)
    files_expire()
    assert File.objects.get(id=file.id).deleted_at is not None


def test_an_upload_that_was_never_finished_goes(company: Company) -> None:
    from webapp.datasets.storage import objects_put
    from webapp.datasets.validate import HashedFile

    part = HashedFile()
    part.write(b"its process was killed before the row was written")
    objects_put(tenant=company.tenant.id.hex, parts=[part])
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
