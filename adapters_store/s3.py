"""Objects in S3: immutable bytes under their tenant's prefix, named by their own sha256."""

import base64
import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from adapters_store.errors import AdapterCorrupt, AdapterMissing, StorageUnavailable

_TENANT = re.compile(r"[0-9a-f]{32}")
_CHUNK = 1 << 20


def object_key(tenant: str, sha256: str) -> str:
    """Where a tenant's bytes are. `tenant` is 32 hex digits, `sha256` 64."""
    return f"tenants/{_checked(tenant)}/objects/{sha256}"


def manifest_key(tenant: str, name: str) -> str:
    """Where an adapter becomes visible to engines; `name` is its serving name (adapters_store.names)."""
    return f"tenants/{_checked(tenant)}/adapters/{name}.json"


def _checked(tenant: str) -> str:
    if _TENANT.fullmatch(tenant) is None:
        raise ValueError("a tenant's id in storage is 32 hexadecimal digits")
    return tenant


@dataclass(frozen=True)
class ObjectStore:
    """One bucket. Every method raises AdapterMissing (no such object) or StorageUnavailable (anything else)."""

    endpoint_url: str | None
    bucket: str
    access_key: str
    secret_key: str = field(repr=False)
    region: str = "us-east-1"
    _client: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        config = Config(
            signature_version="s3v4",
            s3={"addressing_style": "path"},
            connect_timeout=3,
            read_timeout=30,
            retries={"max_attempts": 3, "mode": "standard"},
            # Our own checksum is signed below; boto's default CRC would be one that a presigned PUT cannot send.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint_url,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
            config=config,
        )
        object.__setattr__(self, "_client", client)

    def put(self, key: str, data: bytes) -> None:
        """Store bytes in one PUT (never multipart: content-addressed objects have one writer's bytes or none)."""
        checksum = base64.b64encode(hashlib.sha256(data).digest()).decode()
        with _faults():
            self._client.put_object(Bucket=self.bucket, Key=key, Body=data, ChecksumSHA256=checksum)

    def put_file(self, key: str, file: IO[bytes], sha256: str, size: int) -> None:
        """Store a seekable file of `size` bytes whose sha256 (hex) the caller has computed."""
        with _faults():
            self._client.put_object(
                Bucket=self.bucket, Key=key, Body=file, ContentLength=size, ChecksumSHA256=_base64(sha256)
            )

    def get(self, key: str, max_bytes: int) -> bytes:
        """The whole object; raises AdapterCorrupt if it is larger than `max_bytes`."""
        with _faults():
            body = self._client.get_object(Bucket=self.bucket, Key=key)["Body"]
            data: bytes = body.read(max_bytes + 1)
            body.close()
        if len(data) > max_bytes:
            raise AdapterCorrupt(f"A stored object is larger than {max_bytes} bytes.")
        return data

    def stream(self, key: str) -> Iterator[bytes]:
        """The object in chunks of 1 MiB."""
        with _faults():
            yield from self._client.get_object(Bucket=self.bucket, Key=key)["Body"].iter_chunks(_CHUNK)

    def get_to_file(self, key: str, path: Path, *, sha256: str, size: int) -> None:
        """Download to `path`, verified; raises AdapterCorrupt and leaves no file if the bytes are not the promised."""
        hasher, seen = hashlib.sha256(), 0
        with path.open("wb") as file:
            for chunk in self.stream(key):
                seen += len(chunk)
                if seen > size:
                    break
                hasher.update(chunk)
                file.write(chunk)
        if seen != size or hasher.hexdigest() != sha256:
            path.unlink()
            raise AdapterCorrupt("A stored object does not have the size and sha256 that its manifest says.")

    def size(self, key: str) -> int | None:
        """Bytes stored under `key`, or None if there is no such object."""
        try:
            with _faults():
                return int(self._client.head_object(Bucket=self.bucket, Key=key)["ContentLength"])
        except AdapterMissing:
            return None

    def delete(self, key: str) -> None:
        """Remove the object; it is no error if it is not there."""
        with _faults():
            self._client.delete_object(Bucket=self.bucket, Key=key)

    def presign_put(self, key: str, *, sha256: str, size: int, seconds: int) -> tuple[str, dict[str, str]]:
        """A URL that takes exactly the bytes with this sha256 and size, and the headers to send with them."""
        params = {
            "Bucket": self.bucket,
            "Key": key,
            "ContentLength": size,
            "ChecksumSHA256": _base64(sha256),
        }
        url: str = self._client.generate_presigned_url("put_object", Params=params, ExpiresIn=seconds)
        return url, {"Content-Length": str(size), "x-amz-checksum-sha256": _base64(sha256)}

    def presign_get(self, key: str, *, seconds: int) -> str:
        params = {"Bucket": self.bucket, "Key": key}
        url: str = self._client.generate_presigned_url("get_object", Params=params, ExpiresIn=seconds)
        return url


def _base64(sha256: str) -> str:
    return base64.b64encode(bytes.fromhex(sha256)).decode()


@contextmanager
def _faults() -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 404:
            raise AdapterMissing("There is no such object in storage.") from None
        code = error.response.get("Error", {}).get("Code", "unknown")
        raise StorageUnavailable(f"Object storage answered with the error {code}.") from error
    except BotoCoreError as error:
        raise StorageUnavailable(f"Object storage could not be reached ({type(error).__name__}).") from error
