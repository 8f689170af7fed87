"""Bytes to and from object storage through presigned URLs, verified on the way."""

import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

from adapters_store.weights import file_sha256
from training_jobs.client import JobCalls
from training_jobs.errors import AWAY_STATUSES, Away, PassingFault
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
        """Raises Away or PassingFault if storage does not give the promised bytes, after a few attempts."""
        what = "The job's data could not be read from object storage."
        _patiently(lambda: self._fetch(source, path), what)
        return path

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
        """Store a file under its own digest; a fresh URL for every attempt. Raises Fenced, Away, PassingFault."""
        there = Object(sha256=file_sha256(path), size=path.stat().st_size)

        def put() -> bool:
            slot = calls.upload_slot(UploadRequest(epoch=calls.epoch, **there.model_dump()))
            if not slot.already_there:
                self._http.put(slot.url, content=_chunks(path), headers=slot.headers).raise_for_status()
            return True

        _patiently(put, "The trained adapter could not be written to object storage.")
        return there


def _patiently(act: Callable[[], bool], what: str) -> None:
    """Until `act` gives True or was tried a few times; the last fault decides. `what` begins its sentence."""
    fault: PassingFault = Away("storage_unavailable", what)
    for attempt in range(_ATTEMPTS):
        time.sleep(attempt)
        try:
            if act():
                return
            fault = PassingFault("storage_failed", f"{what} What it gives is not what was stored.")
        except httpx.HTTPError as error:
            fault = _fault(error, what)
        except OSError as error:
            fault = PassingFault("disk_failed", f"{what} The trainer's disk has a fault: {error.strerror}.")
    raise fault


def _fault(error: httpx.HTTPError, what: str) -> PassingFault:
    if isinstance(error, httpx.HTTPStatusError) and error.response.status_code not in AWAY_STATUSES:
        return PassingFault("storage_failed", f"{what} It answered {error.response.status_code}.")
    return Away("storage_unavailable", what)


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
