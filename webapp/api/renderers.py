"""JSON, whatever the client says it accepts: the OpenAI client asks for application/binary to read a file."""

from typing import Any

import orjson
from rest_framework.negotiation import BaseContentNegotiation, DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request


class JsonRenderer(BaseRenderer):
    media_type = "application/json"
    format = "json"
    charset = None

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None
    ) -> bytes:
        return b"" if data is None else orjson.dumps(data, default=str)


class IgnoreAccept(BaseContentNegotiation):
    """One representation for all: refusing with 406 would help nobody."""

    def select_parser(self, request: Request, parsers: list[Any]) -> Any:
        return DefaultContentNegotiation().select_parser(request, parsers)

    def select_renderer(self, request: Request, renderers: list[Any], format_suffix: Any = None) -> Any:
        return renderers[0], renderers[0].media_type
