"""Who answers: which model, and with which adapter. The rules of the whole gateway are in `answerer_select`."""

from dataclasses import dataclass
from uuid import UUID

from django.db.models import F

from adapters_store.names import qualified_name
from webapp.adapters.models import Adapter, BaseModel
from webapp.adapters.visible import adapters_usable, adapters_visible, check_passed
from webapp.config.faults import BadRequest, NotFound
from webapp.tenants.accounts import end_user_ensure
from webapp.tenants.models import EndUser
from webapp.tenants.scope import Scope, acting_for


@dataclass(frozen=True)
class Answerer:
    """Plain values, so that nothing here reaches for the database while an answer streams."""

    tenant: UUID
    base: str
    #: What the engine is asked for, and what the caller is told.
    serving_name: str
    public_name: str
    adapter: UUID | None = None
    end_user: UUID | None = None
    api_key: UUID | None = None
    #: The tenant itself asks, not one of its end users. The prefix cache is the tenant's: to one of them, what came
    #: from it would tell what another asked.
    for_tenant: bool = False

    @property
    def adapter_header(self) -> str:
        return self.public_name if self.adapter else "base"


def answerer_select(*, scope: Scope, model: str, user: str | None) -> Answerer:
    """Who answers a request for `model` on behalf of `user` (the tenant's id of an end user).

    An adapter named in `model` wins over the user's active one; a base model's name means the user's active adapter
    on it, or the base model itself if they have none. A user key acts for its own end user, whether it says so or not.
    Raises NotFound for a model that is unknown or another's, BadRequest for an adapter that did not pass the gate and
    when adapter and user, or adapter and base model, do not belong together, NotAllowed for a `user` that the caller
    may not act for.
    """
    user = acting_for(scope, user, param="user")
    base = BaseModel.objects.filter(name=model).first()
    if base is None:
        adapter = _named(scope, model)
        _check_owner(adapter, user)
        base = adapter.base
    else:
        adapter = _active(scope, user)
        _check_base(adapter, base)
    end_user = end_user_ensure(tenant=scope.tenant, external_id=user) if user is not None else None
    return answerer(
        scope, base=base, adapter=adapter, end_user=end_user or (adapter.end_user if adapter else None)
    )


def answerer(scope: Scope, *, base: BaseModel, adapter: Adapter | None, end_user: EndUser | None) -> Answerer:
    """For a choice that is already made; all three are the scope's."""
    return Answerer(
        tenant=scope.tenant.id,
        base=base.name,
        serving_name=qualified_name(scope.tenant.storage_id, adapter.name) if adapter else base.name,
        public_name=adapter.public_name if adapter else base.name,
        adapter=adapter.id if adapter else None,
        end_user=end_user.id if end_user else None,
        api_key=scope.api_key.id if scope.api_key else None,
        for_tenant=scope.end_user is None,
    )


def _named(scope: Scope, model: str) -> Adapter:
    adapter = adapters_visible(scope).filter(public_name=model).first()
    if adapter is None:
        raise NotFound(
            f"The model '{model[:100]}' does not exist. GET /v1/models lists those that you can use.",
            code="model_not_found",
            param="model",
        )
    check_passed(adapter, param="model")
    return adapter


def _active(scope: Scope, user: str | None) -> Adapter | None:
    """The adapter that answers for an end user unless another is named."""
    active = adapters_usable(scope).filter(end_user__active_adapter=F("id"))
    return active.filter(end_user__external_id=user).first() if user is not None else None


def _check_owner(adapter: Adapter, user: str | None) -> None:
    if user is not None and adapter.end_user is not None and adapter.end_user.external_id != user:
        raise BadRequest(
            "The adapter named in `model` belongs to another end user than `user`. Leave one of the two out.",
            code="wrong_user",
            param="model",
        )


def _check_base(adapter: Adapter | None, base: BaseModel) -> None:
    if adapter is not None and adapter.base_id != base.id:
        raise BadRequest(
            f"The active adapter of this end user is made for {adapter.base.name}, not for {base.name}. Ask for "
            f"{adapter.base.name}, or activate one for {base.name}.",
            code="wrong_base",
            param="model",
        )
