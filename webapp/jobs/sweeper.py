"""What time does to things: expired files, garbage in storage, answers kept for repeats."""

import re
import uuid
from contextlib import suppress
from datetime import timedelta

import structlog
from django.db import transaction
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now

from adapters_store.errors import StorageUnavailable
from adapters_store.manifest import Manifest
from adapters_store.names import qualified_name
from webapp.adapters.forgetting import adapter_forget
from webapp.adapters.models import Adapter
from webapp.api.models import IdempotentRequest
from webapp.config.faults import BadRequest
from webapp.datasets.files import file_delete
from webapp.datasets.models import File, ObjectRemoval
from webapp.datasets.storage import object_lock, store
from webapp.jobs.models import TERMINAL, Job, JobUpload, State

_log = structlog.get_logger("attune.sweeper")
_OBJECT = re.compile(r"tenants/(?P<tenant>[0-9a-f]{32})/objects/(?P<sha256>[0-9a-f]{64})")
_MANIFEST = re.compile(r"tenants/(?P<tenant>[0-9a-f]{32})/adapters/(?P<name>a[ap]-[0-9a-f]{64})\.json")
_BATCH = 200
_PAUSE = timedelta(minutes=1)


def objects_sweep() -> int:
    """Remove what no row needs; how many objects went.

    One that storage does not let go is set aside, and the round ends with it: the next one begins behind it.
    """
    due = ObjectRemoval.objects.filter(not_before__lte=Now()).order_by("id").values_list("id", flat=True)
    swept = 0
    for removal in list(due[:_BATCH]):
        try:
            swept += _sweep(removal)
        except StorageUnavailable as error:
            ObjectRemoval.objects.filter(id=removal).update(not_before=Now() + _PAUSE)
            _log.warning("object not removed", reason=error.message)
            break
    return swept


@transaction.atomic
def _sweep(removal_id: int) -> bool:
    removal = ObjectRemoval.objects.select_for_update(skip_locked=True).filter(id=removal_id).first()
    if removal is None:
        return False
    object_lock(removal.key)
    needed = _needed(removal.key)
    if not needed:
        store().delete(removal.key)
        if match := _MANIFEST.fullmatch(removal.key):
            adapter_forget(name=qualified_name(match["tenant"], match["name"]))
        _log.info("object removed")
    removal.delete()
    return not needed


def _needed(key: str) -> bool:
    """Whether a row stands for this object."""
    if match := _MANIFEST.fullmatch(key):
        tenant, name = uuid.UUID(match["tenant"]), match["name"]
        gating = Job.objects.filter(tenant=tenant, state=State.GATING).values_list("manifest", flat=True)
        return Adapter.objects.filter(tenant=tenant, name=name, deleted_at=None).exists() or any(
            _name(manifest) == name for manifest in gating
        )
    match = _OBJECT.fullmatch(key)
    assert match is not None, "keys in the garbage list are made by object_key and manifest_key"
    tenant, sha256 = uuid.UUID(match["tenant"]), match["sha256"]
    of_file = Q(sha256=sha256) | Q(conversations_sha256=sha256) | Q(report_sha256=sha256)
    return (
        File.objects.filter(of_file, tenant=tenant, deleted_at=None).exists()
        or Job.objects.filter(tenant=tenant, conversations_sha256=sha256).exclude(state__in=TERMINAL).exists()
        or JobUpload.objects.filter(tenant=tenant, sha256=sha256).exists()
        or Adapter.objects.filter(tenant=tenant, deleted_at=None, object_digests__contains=[sha256]).exists()
    )


def _name(manifest: dict[str, object]) -> str:
    return Manifest.model_validate(manifest).name


def files_expire() -> None:
    """Delete files whose `expires_after` has passed; one that is trained on waits for the job's end."""
    unfinished = Job.objects.exclude(state__in=TERMINAL)
    used = unfinished.filter(Q(training_file=OuterRef("id")) | Q(validation_file=OuterRef("id")))
    expired = File.objects.filter(~Exists(used), expires_at__lt=Now(), deleted_at=None)
    for file in expired[:_BATCH]:
        # A job may have begun on it in between.
        with suppress(BadRequest):
            file_delete(file=file)


def answers_forget() -> None:
    """Idempotency keys are good for a day."""
    IdempotentRequest.objects.filter(created_at__lt=Now() - timedelta(days=1)).delete()
