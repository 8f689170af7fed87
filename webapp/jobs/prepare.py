"""validating → queued: one object with everything that a trainer reads, the validation rows marked."""

import hashlib
import json
import uuid
from collections.abc import Iterator
from typing import Any

from adapters_store.errors import AdapterMissing, StorageUnavailable
from adapters_store.s3 import object_key
from webapp.datasets.storage import objects_put, storage_away, store
from webapp.datasets.validate import HashedFile
from webapp.jobs.lifecycle import job_fail_validation, job_queue
from webapp.jobs.models import Job, State


def job_prepare(*, job: uuid.UUID) -> None:
    """Idempotent. Raises Unavailable while storage is away; bytes that are gone for good fail the job."""
    row = Job.objects.select_related("tenant", "training_file", "validation_file").get(id=job)
    if row.state != State.VALIDATING:
        return
    file = row.training_file
    if row.validation_file is None:
        job_queue(
            job=job,
            conversations_sha256=file.conversations_sha256,
            conversations_size=file.conversations_size,
        )
        return
    merged = HashedFile()
    try:
        leaked = _merge(row, merged)
        if leaked:
            job_fail_validation(
                job=job,
                code="validation_leak",
                message=f"{len(leaked):,} conversations are in both files (the first is row {leaked[0]} of the "
                "validation file). What was trained on cannot measure anything; remove them from one of the two.",
            )
            return
        objects_put(tenant=row.tenant.storage_id, parts=[merged])
        job_queue(job=job, conversations_sha256=merged.sha256, conversations_size=merged.size)
    except AdapterMissing:
        job_fail_validation(
            job=job,
            code="file_lost",
            message="The bytes of one of the two files are gone from storage. Upload it again, and start a new job.",
        )
    except StorageUnavailable:
        raise storage_away() from None
    finally:
        merged.close()


def _merge(row: Job, merged: HashedFile) -> list[str]:
    """Write training, then validation rows; the ids of validation rows that are training rows too.

    Memory: 32 bytes a training row, and one row at a time.
    """
    assert row.validation_file is not None
    seen, leaked = set(), []
    for line in _lines(row, row.training_file.conversations_sha256):
        talk = json.loads(line)
        seen.add(_identity(talk))
        merged.write(line + b"\n")
    for line in _lines(row, row.validation_file.conversations_sha256):
        talk = json.loads(line)
        if _identity(talk) in seen:
            leaked.append(talk["id"])
        talk |= {"id": f"v{talk['id']}", "split": "validation"}
        merged.write(json.dumps(talk, ensure_ascii=False).encode() + b"\n")
    return leaked


def _identity(talk: dict[str, Any]) -> bytes:
    return hashlib.sha256(json.dumps(talk["messages"], sort_keys=True).encode()).digest()


def _lines(row: Job, sha256: str) -> Iterator[bytes]:
    """Lines of our own normalised files, so each is short enough to hold."""
    rest = b""
    for chunk in store().stream(object_key(row.tenant.storage_id, sha256)):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
    if rest:
        yield rest
