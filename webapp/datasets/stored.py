"""The normalised conversations of a file that was checked, as they lie in storage."""

from collections.abc import Iterator

from adapters_store.s3 import object_key
from webapp.datasets.storage import store


def stored_lines(*, tenant: str, sha256: str) -> Iterator[bytes]:
    """Lines of our own files, so each is short enough to hold. Raises AdapterMissing or StorageUnavailable."""
    rest = b""
    for chunk in store().stream(object_key(tenant, sha256)):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
    if rest:
        yield rest
