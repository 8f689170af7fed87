"""Bodies are capped while they arrive: Django itself would first spool all of one to disk."""

from typing import Any

import structlog

from webapp.api.errors import error_response
from webapp.config.faults import TooLarge
from webapp.config.request_ids import request_id_of

_log = structlog.get_logger("attune.request")
#: Room for the multipart form around a file of the largest size.
_FORM_BYTES = 1_000_000


class BodyLimit:
    """ASGI middleware: 413 as soon as a body is, or says it is, larger than `limit` bytes and a form around it."""

    def __init__(self, app: Any, *, limit: int) -> None:
        self.app = app
        self.limit = limit + _FORM_BYTES

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        headers = dict(scope["headers"])
        said = headers.get(b"content-length", b"0")
        if not said.isdigit() or int(said) > self.limit:
            return await self._refuse(headers, send)
        seen, refused = 0, False

        async def counted() -> Any:
            nonlocal seen, refused
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self.limit and not refused:
                refused = True
                await self._refuse(headers, send)
            # To Django it looks as if the client had left.
            return {"type": "http.disconnect"} if refused else message

        async def unless_refused(message: Any) -> None:
            if not refused:
                await send(message)

        await self.app(scope, counted, unless_refused)

    async def _refuse(self, asked: dict[bytes, bytes], send: Any) -> None:
        request_id = request_id_of(asked.get(b"x-request-id", b"").decode("latin-1"))
        _log.info("request", request_id=request_id, status=TooLarge.status)
        fault = TooLarge(
            f"The request is larger than {self.limit - _FORM_BYTES:,} bytes. Upload the file in parts.",
            code="file_too_large",
        )
        response = error_response(fault)
        headers = [
            (b"content-type", b"application/json"),
            (b"connection", b"close"),
            (b"x-request-id", request_id.encode()),
        ]
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": response.content})
