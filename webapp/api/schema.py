"""OpenAPI at /api/schema, the chat gateway's route included (it is a plain async view)."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.views import SpectacularJSONAPIView


class ApiKeyScheme(OpenApiAuthenticationExtension):
    target_class = "webapp.api.authentication.ApiKeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "attune_…"}


class Schema(SpectacularJSONAPIView):
    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []


def add_chat(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """A postprocessing hook of drf-spectacular."""
    from webapp.chat.request import ChatRequest

    reference = "#/components/schemas/{model}"
    asked = ChatRequest.model_json_schema(ref_template=reference)
    result["components"]["schemas"] |= asked.pop("$defs", {}) | {"ChatRequest": asked}
    body = {"application/json": {"schema": {"$ref": reference.format(model="ChatRequest")}}}
    answer = {
        "description": "OpenAI's chat.completion; with `stream`, server-sent events of chat.completion.chunk and "
        "a last `[DONE]`. The header x-attune-adapter says which adapter answered, or `base`.",
        "content": {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {}},
    }
    result["paths"]["/v1/chat/completions"] = {
        "post": {
            "operationId": "chat_completions",
            "description": "`user` selects the end user's active adapter; an adapter named in `model` wins.",
            "tags": ["chat"],
            "requestBody": {"required": True, "content": body},
            "security": [{"apiKey": []}],
            "responses": {"200": answer},
        }
    }
    return result
