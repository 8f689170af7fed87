"""Who answers: which model, and with which adapter. The rules of the whole gateway are in `answerer_select`."""

from dataclasses import dataclass
from uuid import UUID

from adapters_store.names import qualified_name
from webapp.adapters.models import Adapter, BaseModel
from webapp.config.faults import BadRequest, NotAllowed, NotFound
from webapp.tenants.models import ApiKey, EndUser, Tenant


@dataclass(frozen=True)
class Answerer:
    """Plain values, so that nothing here reaches for the database while an answer streams."""

    tenant: UUID
    base: str
    base_label: str
    #: What the engine is asked for, and what the caller is told.
    serving_name: str
    public_name: str
    adapter: UUID | None = None
    end_user: UUID | None = None
    api_key: UUID | None = None

    @property
    def adapter_header(self) -> str:
        return self.public_name if self.adapter else "base"


def answerer_select(
    *,
    tenant: Tenant,
    model: str,
    user: str | None,
    key_user: EndUser | None = None,
    api_key: ApiKey | None = None,
) -> Answerer:
    """Who answers a request for `model` on behalf of `user` (the tenant's id of an end user).

    An adapter named in `model` wins over the user's active one; a base model's name means the user's active adapter
    on it, or the base model itself if they have none. `key_user`: the only end user that a user key may act for.
    Raises NotFound for a model that is unknown or another tenant's, BadRequest when adapter and user, or adapter and
    base model, do not belong together, NotAllowed when a user key names someone else.
    """
    if key_user is not None:
        if user is not None and user != key_user.external_id:
            raise NotAllowed(
                "This key acts for one end user only, and `user` names another. Leave `user` out or use another key.",
                code="wrong_user",
                param="user",
            )
        user = key_user.external_id
    base = BaseModel.objects.filter(name=model).first()
    end_user = None
    if user is not None:
        end_user, _ = EndUser.objects.select_related("active_adapter__base").get_or_create(
            tenant=tenant, external_id=user
        )
    if base is None:
        adapter = _named(tenant, model, key_user)
        _belongs(adapter, user)
        base = adapter.base
    else:
        adapter = end_user.active_adapter if end_user else None
        if adapter is not None and adapter.deleted_at is not None:
            adapter = None
        if adapter is not None and adapter.base_id != base.id:
            raise BadRequest(
                f"The active adapter of this end user is made for {adapter.base.name}, not for {base.name}. Ask for "
                f"{adapter.base.name}, or activate one for {base.name}.",
                code="wrong_base",
                param="model",
            )
    return Answerer(
        tenant=tenant.id,
        base=base.name,
        base_label=base.label,
        serving_name=qualified_name(tenant.storage_id, adapter.name) if adapter else base.name,
        public_name=adapter.public_name if adapter else base.name,
        adapter=adapter.id if adapter else None,
        end_user=end_user.id if end_user else None,
        api_key=api_key.id if api_key else None,
    )


def _named(tenant: Tenant, model: str, key_user: EndUser | None) -> Adapter:
    adapter = (
        Adapter.objects.select_related("base", "end_user")
        .filter(tenant=tenant, public_name=model, deleted_at=None)
        .first()
    )
    # To a user key another's adapter does not exist; a tenant-wide one is everybody's.
    if adapter is None or (key_user and adapter.end_user_id not in (None, key_user.id)):
        raise NotFound(
            f"The model '{model[:100]}' does not exist. GET /v1/models lists those that you can use.",
            code="model_not_found",
            param="model",
        )
    return adapter


def _belongs(adapter: Adapter, user: str | None) -> None:
    if user is not None and adapter.end_user is not None and adapter.end_user.external_id != user:
        raise BadRequest(
            "The adapter named in `model` belongs to another end user than `user`. Leave one of the two out.",
            code="wrong_user",
            param="model",
        )
