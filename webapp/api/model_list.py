"""/v1/models: base models, and the adapters that the caller may name."""

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from webapp.adapters.adapters import adapter_delete
from webapp.adapters.models import Adapter, BaseModel
from webapp.adapters.visible import adapters_owned, adapters_usable, adapters_visible
from webapp.api.shapes import Deleted, ModelList, ModelObject, adapter_shape, base_shape
from webapp.config.faults import NotAllowed, NotFound
from webapp.tenants.scope import Scope


class Models(APIView):
    @extend_schema(operation_id="models_list", responses=ModelList)
    def get(self, request: Request) -> Response:
        """Base models first, the default at the top; then adapters that answer, newest first."""
        bases = BaseModel.objects.order_by("-is_default", "name")
        adapters = adapters_usable(request.user).order_by("-created_at", "-id")
        data = [*(base_shape(base) for base in bases), *(adapter_shape(adapter) for adapter in adapters)]
        return Response({"object": "list", "data": data})


class Model(APIView):
    @extend_schema(operation_id="models_retrieve", responses=ModelObject)
    def get(self, request: Request, model: str) -> Response:
        base = _base(model)
        return Response(base_shape(base) if base else adapter_shape(_adapter(request.user, model)))

    @extend_schema(operation_id="models_delete", responses=Deleted)
    def delete(self, request: Request, model: str) -> Response:
        """Delete an adapter: chats of its end user are answered by the base model from now on."""
        if _base(model) is not None:
            raise NotAllowed(
                "A base model belongs to the installation; it cannot be deleted here.", code="not_yours"
            )
        adapter = _adapter(request.user, model)
        if not adapters_owned(request.user).filter(id=adapter.id).exists():
            raise NotAllowed(
                "This key acts for one end user only; this adapter is the tenant's.", code="not_yours"
            )
        adapter_delete(adapter=adapter)
        return Response(Deleted(id=adapter.public_name, object="model").model_dump())


def _base(name: str) -> BaseModel | None:
    # PostgreSQL refuses to look for a NUL.
    return None if "\x00" in name else BaseModel.objects.filter(name=name).first()


def _adapter(scope: Scope, name: str) -> Adapter:
    adapter = None if "\x00" in name else adapters_visible(scope).filter(public_name=name).first()
    if adapter is None:
        raise NotFound(
            f"The model '{name[:100]}' does not exist. GET /v1/models lists those that you can use.",
            code="model_not_found",
            param="model",
        )
    return adapter
