"""Uploads: what may be done with them. The bytes are in S3 before the row that makes them visible is committed."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import IO

import structlog
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from adapters_store.errors import AdapterError
from adapters_store.s3 import object_key
from webapp.config.faults import BadRequest, NotAllowed, TooLarge
from webapp.config.settings import settings
from webapp.datasets.models import File, FileStatus
from webapp.datasets.storage import object_drop, object_keep, object_put, storage_away, store
from webapp.datasets.upload import Asked
from webapp.datasets.validate import HashedFile, Validated, validate
from webapp.jobs.models import TERMINAL, Job
from webapp.tenants.models import EndUser, Tenant, User
from webapp.tenants.scope import Scope

_log = structlog.get_logger("attune.files")
_CHUNK = 1 << 20
_UNSAFE = re.compile(r"[\x00-\x1f\x7f/\\]+")
#: The one purpose of uploads, and that of the files that jobs write.
UPLOAD_PURPOSE = "fine-tune"
RESULTS_PURPOSE = "fine-tune-results"


def file_create(
    *,
    tenant: Tenant,
    filename: str,
    stream: IO[bytes] | Iterable[bytes],
    uploaded_by: User | None = None,
    end_user: EndUser | None = None,
    purpose: str = UPLOAD_PURPOSE,
    asked: Asked | None = None,
    expires_after: timedelta | None = None,
) -> File:
    """Take an upload, check it row by row, and keep it with its report.

    A file with some bad rows is `processed` and trainable on its good ones; without a good row it is `error`. Raises
    TooLarge, BadRequest (another purpose), Unavailable (storage is away); never for what is in the file.
    `uploaded_by`: the person, if it came by the dashboard; its content is then theirs alone. `asked`: who 'me' is in
    a chat export, and whose voice to train in an assistant's.
    """
    if purpose != UPLOAD_PURPOSE:
        raise BadRequest(
            f"Upload with purpose '{UPLOAD_PURPOSE}'; others are not used here.",
            code="bad_purpose",
            param="purpose",
        )
    raw = HashedFile()
    try:
        for chunk in _chunks(stream):
            raw.write(chunk)
            if raw.size > settings().max_upload_bytes:
                raise TooLarge(
                    f"The file is larger than {settings().max_upload_bytes:,} bytes. Upload it in parts.",
                    code="file_too_large",
                    param="file",
                )
        raw.file.seek(0)
        checked = validate(raw.file, asked)
        try:
            file = File(
                tenant=tenant,
                end_user=end_user,
                uploaded_by=uploaded_by,
                filename=_clean(filename),
                purpose=purpose,
                expires_at=Now() + expires_after if expires_after else None,
            )
            return _store(file, raw, checked)
        finally:
            checked.close()
    finally:
        raw.close()


def results_file_create(*, tenant: Tenant, end_user: EndUser | None, filename: str, content: bytes) -> File:
    """A file that a job wrote. Within the transaction that refers to it."""
    raw = HashedFile()
    try:
        raw.write(content)
        file = File(tenant=tenant, end_user=end_user, filename=filename, purpose=RESULTS_PURPOSE)
        file.status, file.sha256, file.size = FileStatus.PROCESSED, raw.sha256, raw.size
        object_keep(tenant=tenant.storage_id, file=raw.file, sha256=raw.sha256, size=raw.size)
        file.save()
        return file
    finally:
        raw.close()


def file_delete(*, file: File) -> None:
    """The row stays as a tombstone for the jobs made of it; its bytes go, unless an equal upload needs them.

    Raises BadRequest while a job trains on it.
    """
    with transaction.atomic():
        locked = File.objects.select_for_update().get(id=file.id)
        if locked.deleted_at is not None:
            return
        uses = Q(training_file=locked) | Q(validation_file=locked)
        job = Job.objects.filter(uses).exclude(state__in=TERMINAL).first()
        if job is not None:
            raise BadRequest(
                f"The job {job.public_id} is training on this file. Cancel it or wait for its end, then delete.",
                code="file_in_use",
            )
        File.objects.filter(id=locked.id).update(deleted_at=Now(), report={}, filename="(deleted)")
        for sha256 in filter(None, (locked.sha256, locked.conversations_sha256, locked.report_sha256)):
            object_drop(object_key(locked.tenant.storage_id, sha256))


def may_read_file(*, scope: Scope, file: File) -> bool:
    """Whether the caller may see what is in a file they can see is there.

    What a person uploaded in the dashboard is for that person, and for keys that act for that person's end user; the
    tenant's own uploads are for the tenant.
    """
    if file.uploaded_by_id is None:
        return True
    if scope.user is not None:
        return scope.user.id == file.uploaded_by_id
    return scope.end_user is not None and scope.end_user.id == file.end_user_id


def file_content(*, scope: Scope, file: File) -> Iterator[bytes]:
    """The bytes as they were uploaded; raises NotAllowed, Unavailable."""
    return _stream(scope, file, file.sha256)


def file_problems(*, scope: Scope, file: File) -> Iterator[bytes]:
    """Every bad row, one JSON object a line ({line, field, reason, fix}); raises like `file_content`."""
    return _stream(scope, file, file.report_sha256) if file.report_sha256 else iter(())


def _stream(scope: Scope, file: File, sha256: str) -> Iterator[bytes]:
    if not may_read_file(scope=scope, file=file):
        raise NotAllowed(
            "A person uploaded this file for their own model, so only they can read it.",
            code="content_private",
        )
    key = object_key(file.tenant.storage_id, sha256)
    try:
        if store().size(key) is None:
            raise storage_away()
    except AdapterError:
        raise storage_away() from None
    return store().stream(key)


def _store(file: File, raw: HashedFile, checked: Validated) -> File:
    report, talks, problems = checked.report, checked.conversations, checked.problems
    tenant = file.tenant.storage_id
    objects = [raw]
    file.sha256, file.size = raw.sha256, raw.size
    file.format, file.report = report.format, report.as_json()
    file.status = FileStatus.ERROR if report.error else FileStatus.PROCESSED
    if report.error is None:
        file.conversations_sha256, file.conversations_size = talks.sha256, talks.size
        file.conversations_count, file.examples_count = report.good, report.examples
        objects.append(talks)
    if problems.size:
        file.report_sha256, file.report_size = problems.sha256, problems.size
        objects.append(problems)
    for part in objects:
        object_put(tenant=tenant, file=part.file, sha256=part.sha256, size=part.size)
    with transaction.atomic():
        for part in sorted(objects, key=lambda each: each.sha256):
            object_keep(tenant=tenant, file=part.file, sha256=part.sha256, size=part.size)
        file.save()
    _log.info("file", file=file.public_id, status=file.status, rows=report.rows, bad=report.bad)
    if file.expires_at is not None:
        file.refresh_from_db(fields=["expires_at"])
    return file


def _chunks(stream: IO[bytes] | Iterable[bytes]) -> Iterator[bytes]:
    if hasattr(stream, "read"):
        while chunk := stream.read(_CHUNK):
            yield chunk
    else:
        yield from stream


def _clean(filename: str) -> str:
    """A name to show. It is never a path: keys in storage are made from digests."""
    name = unicodedata.normalize("NFC", filename).encode("utf-8", "replace").decode()
    return _UNSAFE.sub("_", name).strip()[-255:] or "upload"
