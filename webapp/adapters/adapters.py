"""What may be done with adapters: make one the active one of its end user, put it aside, delete it."""

import httpx
import structlog
from django.db import transaction
from django.db.models.functions import Now

from adapters_store.names import qualified_name
from adapters_store.s3 import manifest_key, object_key
from webapp.adapters.models import Adapter
from webapp.config.faults import BadRequest, NotFound
from webapp.config.settings import settings
from webapp.datasets.storage import object_drop
from webapp.tenants.models import EndUser

_log = structlog.get_logger("attune.adapters")


@transaction.atomic
def adapter_activate(*, adapter: Adapter) -> None:
    """From the next chat on, its end user is answered by this version. Idempotent."""
    row = _locked(adapter)
    if row.end_user_id is None:
        raise BadRequest(
            "A tenant-wide adapter is nobody's own; name it as the model instead.", code="adapter_tenant_wide"
        )
    EndUser.objects.filter(id=row.end_user_id).update(active_adapter=row)


@transaction.atomic
def adapter_deactivate(*, adapter: Adapter) -> None:
    """If it is the active one, its end user is answered by the base model again. Idempotent."""
    row = _locked(adapter)
    EndUser.objects.filter(id=row.end_user_id, active_adapter=row).update(active_adapter=None)


def adapter_delete(*, adapter: Adapter) -> None:
    """The row stays as a tombstone; pointer, manifest and bytes go, and engines are told to forget it. Idempotent."""
    with transaction.atomic():
        row = Adapter.objects.select_for_update(of=("self",)).select_related("tenant").get(id=adapter.id)
        if row.deleted_at is not None:
            return
        EndUser.objects.filter(active_adapter=row).update(active_adapter=None)
        Adapter.objects.filter(id=row.id).update(deleted_at=Now(), manifest={}, object_digests=[])
        object_drop(manifest_key(row.tenant.storage_id, row.name))
        for sha256 in row.object_digests:
            object_drop(object_key(row.tenant.storage_id, sha256))
    still_there = Adapter.objects.filter(tenant=row.tenant, name=row.name, deleted_at=None).exists()
    if not still_there:
        _forget(qualified_name(row.tenant.storage_id, row.name))


def _locked(adapter: Adapter) -> Adapter:
    """The live row, its end user's row locked before it, as publishing does."""
    if adapter.end_user_id is not None:
        EndUser.objects.select_for_update().get(id=adapter.end_user_id)
    row = Adapter.objects.select_for_update(of=("self",)).filter(id=adapter.id, deleted_at=None).first()
    if row is None:
        raise NotFound("This adapter was deleted.", code="model_not_found")
    return row


def _forget(name: str) -> None:
    """Best effort: an engine that is away has nothing loaded, and no request reaches a deleted adapter anyway."""
    env = settings()
    try:
        httpx.delete(
            f"{env.engine_url}/v1/adapters/{name}",
            headers={"Authorization": f"Bearer {env.engine_key.get_secret_value()}"},
            timeout=3,
            trust_env=False,
        )
    except httpx.HTTPError as error:
        _log.info("engine not told of a deletion", reason=type(error).__name__)
