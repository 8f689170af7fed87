"""The bucket, one client a process, and the garbage list that makes every write and removal survive a crash."""

from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from typing import IO, Protocol

from django.db import transaction
from django.db.models.functions import Now

from adapters_store.errors import StorageUnavailable
from adapters_store.s3 import ObjectStore, object_key
from webapp.config.database import advisory_lock
from webapp.config.faults import Unavailable
from webapp.config.pool import connection_give_back
from webapp.config.settings import settings
from webapp.datasets.models import ObjectRemoval

#: How long an object may wait for the row that needs it.
_UNCLAIMED = timedelta(hours=1)
#: Within which an upload by URL has to begin; trainers ask for a fresh URL each time.
PUT_SECONDS = 300
#: When the last upload by a URL that was given out until now has ended, a large and slow one that began late included.
_UPLOADS_OVER = timedelta(seconds=PUT_SECONDS) + timedelta(hours=1)


class Part(Protocol):
    """Bytes to store, as webapp.datasets.validate.HashedFile has them: seekable, with their sha256 (hex)."""

    @property
    def file(self) -> IO[bytes]: ...

    @property
    def sha256(self) -> str: ...

    @property
    def size(self) -> int: ...


@lru_cache(maxsize=1)
def store() -> ObjectStore:
    env = settings()
    return ObjectStore(
        endpoint_url=env.s3_endpoint_url,
        bucket=env.s3_bucket,
        access_key=env.s3_access_key,
        secret_key=env.s3_secret_key.get_secret_value(),
        region=env.s3_region,
    )


def storage_away() -> Unavailable:
    return Unavailable(
        "Storage cannot be reached at the moment; nothing was changed. Try again shortly.",
        code="storage_unavailable",
    )


def objects_put(*, tenant: str, parts: Sequence[Part]) -> None:
    """Store bytes whose row is yet to be written. Should that never happen, the sweeper removes them in an hour.

    Never within a transaction: a rollback would take the lines of the garbage list with it, and leave the bytes.
    Raises Unavailable. `tenant`: the tenant's storage id.
    """
    with transaction.atomic(durable=True):
        ObjectRemoval.objects.bulk_create(
            ObjectRemoval(key=object_key(tenant, part.sha256), not_before=Now() + _UNCLAIMED)
            for part in parts
        )
    connection_give_back()
    for part in parts:
        _put(tenant, part)


def object_keep(*, tenant: str, part: Part) -> None:
    """Within the transaction that writes the row of bytes that were put: from here on the object stays.

    Puts it again if the sweeper removed equal bytes since (the last row that needed them was deleted).
    """
    key = object_key(tenant, part.sha256)
    object_lock(key)
    try:
        there = store().size(key) == part.size
    except StorageUnavailable:
        raise storage_away() from None
    if not there:
        _put(tenant, part)


def object_drop(key: str) -> None:
    """Within the transaction after which the caller's row no longer needs the object; others' rows may."""
    ObjectRemoval.objects.create(key=key)


def upload_drop(key: str) -> None:
    """`object_drop` for an object that somebody may hold a URL to upload: what lands late goes, too."""
    ObjectRemoval.objects.bulk_create(
        ObjectRemoval(key=key, not_before=moment) for moment in (Now(), Now() + _UPLOADS_OVER)
    )


def object_lock(key: str) -> None:
    """Until the transaction ends, nobody else decides whether this object stays or goes."""
    advisory_lock(key)


def _put(tenant: str, part: Part) -> None:
    part.file.seek(0)
    try:
        store().put_file(object_key(tenant, part.sha256), part.file, part.sha256, part.size)
    except StorageUnavailable:
        raise storage_away() from None
