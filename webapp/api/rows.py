"""From an id in a request to a row that exists for the caller: a stranger's id is not found, like a made-up one."""

import uuid
from typing import TypeVar

from django.db.models import Model, Q, QuerySet

from webapp.config.faults import NotFound
from webapp.datasets.models import File
from webapp.jobs.models import Job
from webapp.tenants.scope import Scope

M = TypeVar("M", bound=Model)


def files_of(scope: Scope) -> QuerySet[File]:
    return scope.of(File).filter(deleted_at=None).select_related("tenant")


def jobs_of(scope: Scope) -> QuerySet[Job]:
    return scope.of(Job).select_related(
        "tenant__plan", "end_user", "base", "training_file", "validation_file", "result_file", "adapter"
    )


def file_by_id(scope: Scope, public_id: str, *, param: str | None = None) -> File:
    return _by_id(files_of(scope), public_id, "file-", "file", param)


def job_by_id(scope: Scope, public_id: str) -> Job:
    return _by_id(jobs_of(scope), public_id, "ftjob-", "job", None)


def _by_id(rows: QuerySet[M], public_id: str, prefix: str, kind: str, param: str | None) -> M:
    row = rows.filter(id=ident).first() if (ident := ident_of(public_id, prefix)) else None
    if row is None:
        raise NotFound(f"There is no {kind} '{public_id[:100]}'.", code=f"{kind}_not_found", param=param)
    return row


def ident_of(public_id: str, prefix: str) -> uuid.UUID | None:
    """The UUID in an id of ours; None if it is not one."""
    digits = public_id.removeprefix(prefix)
    if not public_id.startswith(prefix) or len(digits) != 32:
        return None
    try:
        return uuid.UUID(digits)
    except ValueError:
        return None


def page_of(rows: QuerySet[M], *, after: M | None, limit: int, newest_first: bool) -> tuple[list[M], bool]:
    """One page in the order of creation, and whether there is more."""
    rows = rows.order_by("-created_at", "-id") if newest_first else rows.order_by("created_at", "id")
    if after is not None:
        side = "lt" if newest_first else "gt"
        same = Q(created_at=after.created_at, **{f"id__{side}": after.pk})  # type: ignore[attr-defined]
        rows = rows.filter(Q(**{f"created_at__{side}": after.created_at}) | same)  # type: ignore[attr-defined]
    found = list(rows[: limit + 1])
    return found[:limit], len(found) > limit
