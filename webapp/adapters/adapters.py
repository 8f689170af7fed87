"""What may be done with adapters: make one the active one of its end user, put it aside, delete it."""

from django.db import transaction
from django.db.models.functions import Now

from adapters_store.s3 import manifest_key, object_key
from webapp.adapters.models import Adapter
from webapp.adapters.visible import check_passed
from webapp.config.faults import BadRequest, NotFound
from webapp.datasets.storage import object_drop
from webapp.tenants.models import EndUser


@transaction.atomic
def adapter_activate(*, adapter: Adapter) -> None:
    """From the next chat on, its end user is answered by this version. Idempotent.

    Raises BadRequest for one that is nobody's own, or that did not pass the gate.
    """
    row = _locked(adapter)
    if row.end_user_id is None:
        raise BadRequest(
            "A tenant-wide adapter is nobody's own; name it as the model instead.", code="adapter_tenant_wide"
        )
    check_passed(row)
    EndUser.objects.filter(id=row.end_user_id).update(active_adapter=row)


@transaction.atomic
def adapter_deactivate(*, adapter: Adapter) -> None:
    """If it is the active one, its end user is answered by the base model again. Idempotent."""
    row = _locked(adapter)
    EndUser.objects.filter(id=row.end_user_id, active_adapter=row).update(active_adapter=None)


@transaction.atomic
def adapter_delete(*, adapter: Adapter) -> None:
    """The row stays as a tombstone; pointer, manifest and bytes go, and engines are told to forget it. Idempotent."""
    row = _row_locked(adapter)
    if row.deleted_at is not None:
        return
    EndUser.objects.filter(active_adapter=row).update(active_adapter=None)
    Adapter.objects.filter(id=row.id).update(deleted_at=Now(), manifest={}, object_digests=[])
    object_drop(manifest_key(row.tenant.storage_id, row.name))
    for sha256 in row.object_digests:
        object_drop(object_key(row.tenant.storage_id, sha256))


def _locked(adapter: Adapter) -> Adapter:
    """The live row; raises NotFound."""
    row = _row_locked(adapter)
    if row.deleted_at is not None:
        raise NotFound("This adapter was deleted.", code="model_not_found")
    return row


def _row_locked(adapter: Adapter) -> Adapter:
    """The row, its end user's row locked before it, as publishing does: any other order could be a deadlock."""
    if adapter.end_user_id is not None:
        EndUser.objects.select_for_update().get(id=adapter.end_user_id)
    return Adapter.objects.select_for_update(of=("self",)).select_related("tenant", "job").get(id=adapter.id)
