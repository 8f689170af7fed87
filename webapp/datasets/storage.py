"""The bucket, one client a process, and the garbage list that makes every write and removal survive a crash."""

import hashlib
from datetime import timedelta
from functools import lru_cache
from typing import IO

from django.db import connection
from django.db.models.functions import Now

from adapters_store.errors import StorageUnavailable
from adapters_store.s3 import ObjectStore, object_key
from webapp.config.faults import Unavailable
from webapp.config.settings import settings
from webapp.datasets.models import ObjectRemoval

#: How long an object may wait for the row that needs it.
_UNCLAIMED = timedelta(hours=1)


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


def object_put(*, tenant: str, file: IO[bytes], sha256: str, size: int) -> None:
    """Store bytes whose row is yet to be written. Should that never happen, the sweeper removes them in an hour.

    Raises Unavailable. `tenant`: the tenant's storage id.
    """
    ObjectRemoval.objects.create(key=object_key(tenant, sha256), not_before=Now() + _UNCLAIMED)
    _put(tenant, file, sha256, size)


def object_keep(*, tenant: str, file: IO[bytes], sha256: str, size: int) -> None:
    """Within the transaction that writes the row: from here on the object stays.

    Puts it again if the sweeper removed equal bytes since (the last row that needed them was deleted).
    """
    key = object_key(tenant, sha256)
    object_lock(key)
    try:
        there = store().size(key) == size
    except StorageUnavailable:
        raise storage_away() from None
    if not there:
        _put(tenant, file, sha256, size)


def object_drop(key: str) -> None:
    """Within the transaction after which the caller's row no longer needs the object; others' rows may."""
    ObjectRemoval.objects.create(key=key)


def object_lock(key: str) -> None:
    """Until the transaction ends, nobody else decides whether this object stays or goes."""
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], signed=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [number])


def _put(tenant: str, file: IO[bytes], sha256: str, size: int) -> None:
    file.seek(0)
    try:
        store().put_file(object_key(tenant, sha256), file, sha256, size)
    except StorageUnavailable:
        raise storage_away() from None
