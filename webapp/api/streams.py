"""Bytes from storage to the client without holding them, a thread or a database connection."""

from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse

from webapp.config.pool import connection_give_back


def download(chunks: Iterator[bytes], *, filename: str, content_type: str) -> StreamingHttpResponse:
    """Always an attachment: what people upload is never shown as a page of ours."""
    response = StreamingHttpResponse(_drawn(chunks), content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="{filename}"'
    response["Cache-Control"] = "private, no-store"
    connection_give_back()
    return response


async def _drawn(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    draw = sync_to_async(next, thread_sensitive=False)
    while (chunk := await draw(chunks, None)) is not None:
        yield chunk
