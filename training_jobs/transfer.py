"""Bytes to and from object storage through presigned URLs, verified on the way."""

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from adapters_store.weights import file_sha256
from training_jobs.client import JobCalls
from training_jobs.errors import Away
from training_jobs.messages import Download, Object, UploadRequest

_CHUNK = 1 << 20
_ATTEMPTS = 5


class Storage:
    """Object storage as someone without credentials sees it."""

    def __init__(self) -> None:
        self._http = httpx.Client(timeout=httpx.Timeout(60.0, connect=5.0))

    def close(self) -> None:
        self._http.close()

    def download(self, source: Download, path: Path) -> Path:
        """Raises Away if storage does not give the promised bytes, after a few attempts."""
        for attempt in range(_ATTEMPTS):
            time.sleep(attempt)
            try:
                if self._fetch(source, path):
                    return path
            except (httpx.HTTPError, OSError):
                continue
        raise Away("storage_unavailable", "The job's data could not be read from object storage.")

    def _fetch(self, source: Download, path: Path) -> bool:
        """Whether the bytes are the promised ones."""
        hasher, size = hashlib.sha256(), 0
        with self._http.stream("GET", source.url) as response, path.open("wb") as file:
            response.raise_for_status()
            for chunk in response.iter_bytes(_CHUNK):
                size += len(chunk)
                if size > source.size:
                    return False
                hasher.update(chunk)
                file.write(chunk)
        return size == source.size and hasher.hexdigest() == source.sha256

    def upload(self, path: Path, calls: JobCalls) -> Object:
        """Store a file under its own digest; a fresh URL for every attempt. Raises Fenced, Away."""
        there = Object(sha256=file_sha256(path), size=path.stat().st_size)
        for attempt in range(_ATTEMPTS):
            time.sleep(attempt)
            slot = calls.upload_slot(UploadRequest(epoch=calls.epoch, **there.model_dump()))
            if slot.already_there:
                return there
            try:
                self._http.put(slot.url, content=_chunks(path), headers=slot.headers).raise_for_status()
                return there
            except (httpx.HTTPError, OSError):
                continue
        raise Away("storage_unavailable", "The trained adapter could not be written to object storage.")


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
