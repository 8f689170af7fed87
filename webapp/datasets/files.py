"""Uploads: what may be done with them. The bytes are in S3 before the row that makes them visible is committed."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import IO, TypedDict, Unpack

import structlog
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from adapters_store.errors import AdapterError
from adapters_store.s3 import object_key
from webapp.config.faults import BadRequest
from webapp.datasets.intake import UPLOAD_PURPOSE, Intake, upload_take
from webapp.datasets.models import File, FileStatus
from webapp.datasets.readers import check_readable
from webapp.datasets.storage import Part, object_drop, object_keep, storage_away, store
from webapp.datasets.upload import Asked
from webapp.jobs.models import TERMINAL, Job
from webapp.tenants.models import EndUser, Tenant, User
from webapp.tenants.scope import Scope

_log = structlog.get_logger("attune.files")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f/\\]+")
#: Of the files that jobs write.
RESULTS_PURPOSE = "fine-tune-results"


class FileFields(TypedDict, total=False):
    """`uploaded_by`: the person, if one uploaded it for themselves; its content is then theirs alone."""

    uploaded_by: User | None
    end_user: EndUser | None
    expires_after: timedelta | None


def file_create(
    *,
    tenant: Tenant,
    filename: str,
    stream: IO[bytes] | Iterable[bytes],
    asked: Asked | None = None,
    **fields: Unpack[FileFields],
) -> File:
    """Take an upload in, and keep it with its report; raises like `upload_take`.

    A file with some bad rows is `processed` and trainable on its good ones; without a good row it is `error`.
    """
    with upload_take(tenant=tenant, stream=stream, asked=asked) as intake:
        return file_keep(tenant=tenant, filename=filename, intake=intake, **fields)


def file_keep(*, tenant: Tenant, filename: str, intake: Intake, **fields: Unpack[FileFields]) -> File:
    """The row of an upload that was taken in; from here on its bytes stay. Raises Unavailable."""
    report, raw = intake.checked.report, intake.raw
    talks, problems = intake.checked.conversations, intake.checked.problems
    expires_after = fields.pop("expires_after", None)
    file = File(
        tenant=tenant,
        filename=_clean(filename),
        purpose=UPLOAD_PURPOSE,
        expires_at=Now() + expires_after if expires_after else None,
        status=FileStatus.ERROR if report.error else FileStatus.PROCESSED,
        sha256=raw.sha256,
        size=raw.size,
        format=report.format,
        report=report.as_json(),
        **fields,
    )
    if report.error is None:
        file.conversations_sha256, file.conversations_size = talks.sha256, talks.size
        file.conversations_count, file.examples_count = report.good, report.examples
    if problems.size:
        file.report_sha256, file.report_size = problems.sha256, problems.size
    with transaction.atomic():
        for part in sorted(intake.parts, key=lambda each: each.sha256):
            object_keep(tenant=tenant.storage_id, part=part)
        file.save()
    _log.info("file", file=file.public_id, status=file.status, rows=report.rows, bad=report.bad)
    if file.expires_at is not None:
        file.refresh_from_db(fields=["expires_at"])
    return file


def file_reread(*, scope: Scope, file: File, asked: Asked) -> File:
    """The same upload, read as `asked` says, in the place of the old one, which is deleted.

    Raises NotAllowed and like `file_create`; BadRequest while a job trains on the old one.
    """
    check_readable(scope=scope, file=file, to="read it again")
    _check_unused(file)
    again = file_create(
        tenant=file.tenant,
        filename=file.filename,
        stream=_stream(scope, file, file.sha256),
        asked=asked,
        uploaded_by=file.uploaded_by,
        end_user=file.end_user,
    )
    File.objects.filter(id=again.id).update(expires_at=file.expires_at)
    file_delete(file=file)
    return again


def results_file_create(*, job: Job, filename: str, content: Part) -> File:
    """A file that a job wrote and put into storage, for whoever may read what it learned from.

    Within the transaction that refers to it.
    """
    object_keep(tenant=job.tenant.storage_id, part=content)
    return File.objects.create(
        tenant=job.tenant,
        end_user=job.end_user,
        uploaded_by_id=job.training_file.uploaded_by_id,
        filename=filename,
        purpose=RESULTS_PURPOSE,
        status=FileStatus.PROCESSED,
        sha256=content.sha256,
        size=content.size,
    )


def file_delete(*, file: File) -> None:
    """The row stays as a tombstone for the jobs made of it; its bytes go, unless an equal upload needs them.

    Raises BadRequest while a job trains on it.
    """
    with transaction.atomic():
        locked = File.objects.select_for_update().get(id=file.id)
        if locked.deleted_at is not None:
            return
        _check_unused(locked)
        File.objects.filter(id=locked.id).update(deleted_at=Now(), report={}, filename="(deleted)")
        for sha256 in filter(None, (locked.sha256, locked.conversations_sha256, locked.report_sha256)):
            object_drop(object_key(locked.tenant.storage_id, sha256))


def _check_unused(file: File) -> None:
    uses = Q(training_file=file) | Q(validation_file=file)
    job = Job.objects.filter(uses).exclude(state__in=TERMINAL).first()
    if job is not None:
        raise BadRequest(
            f"The job {job.public_id} is training on this file. Cancel it or wait for its end, then try again.",
            code="file_in_use",
        )


def file_content(*, scope: Scope, file: File) -> Iterator[bytes]:
    """The bytes as they were uploaded; raises NotAllowed, Unavailable."""
    return _stream(scope, file, file.sha256)


def file_problems(*, scope: Scope, file: File) -> Iterator[bytes]:
    """Every bad row, one JSON object a line ({line, field, reason, fix}); raises like `file_content`."""
    return _stream(scope, file, file.report_sha256) if file.report_sha256 else iter(())


def _stream(scope: Scope, file: File, sha256: str) -> Iterator[bytes]:
    check_readable(scope=scope, file=file, to="read it")
    key = object_key(file.tenant.storage_id, sha256)
    try:
        if store().size(key) is None:
            raise storage_away()
    except AdapterError:
        raise storage_away() from None
    return store().stream(key)


def _clean(filename: str) -> str:
    """A name to show. It is never a path: keys in storage are made from digests."""
    name = unicodedata.normalize("NFC", filename).encode("utf-8", "replace").decode()
    return _UNSAFE.sub("_", name).strip()[-255:] or "upload"
