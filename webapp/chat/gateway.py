"""The one way to the engine, for the API and for the dashboard: an Answerer and a request in, an HTTP response out."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import orjson
import structlog
from django.db import DatabaseError
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.utils.crypto import salted_hmac

from webapp.api.errors import error_body
from webapp.chat.answer import Answer, Tally
from webapp.chat.database import in_database
from webapp.chat.request import ChatRequest, engine_body
from webapp.chat.selection import Answerer
from webapp.chat.shapes import Shape
from webapp.config.faults import UserFault
from webapp.usage.records import usage_record

log = structlog.get_logger(__name__)

#: Seconds before each further try to write a usage row.
_PATIENCE = (0.2, 1.0, 5.0)


async def chat_answer(request: ChatRequest, answerer: Answerer) -> HttpResponseBase:
    """OpenAI's answer, whole or as server-sent events. Raises UserFault if the engine does not begin."""
    completion_id = f"chatcmpl-{uuid.uuid4().hex}"
    body = engine_body(request, model=answerer.serving_name, cache_salt=_cache_salt(answerer))

    async def record(tally: Tally) -> None:
        await _record(answerer, completion_id, tally)

    answer = Answer(body, request_id=completion_id, record=record)
    shape = Shape(completion_id, answerer.public_name, cached=answerer.for_tenant)
    await answer.start()
    response: HttpResponseBase
    if request.stream:
        events = _events(answer, shape, include_usage=request.include_usage)
        response = StreamingHttpResponse(events, content_type="text/event-stream")
        response["cache-control"] = "no-store"
        # A buffering proxy would hold tokens back.
        response["x-accel-buffering"] = "no"
    else:
        async for chunk in answer.chunks():
            shape.add(chunk)
        response = HttpResponse(orjson.dumps(shape.completion(answer.tally)), content_type="application/json")
    response["x-attune-adapter"] = answerer.adapter_header
    return response


async def _events(answer: Answer, shape: Shape, *, include_usage: bool) -> AsyncIterator[bytes]:
    """Server-sent events that always end with [DONE] or with an error: a client cannot tell silence from the end."""
    try:
        async for chunk in answer.chunks():
            if chunk["choices"]:
                yield _event(shape.chunk(chunk, include_usage=include_usage))
        if include_usage:
            yield _event(shape.last_chunk(answer.tally))
    except UserFault as fault:
        yield _event(error_body(fault))
        return
    yield b"data: [DONE]\n\n"


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"


def _cache_salt(answerer: Answerer) -> str:
    """Cached prompts are shared within a tenant only, and no tenant can guess another's salt."""
    return salted_hmac("attune.cache_salt", answerer.tenant.hex, algorithm="sha256").hexdigest()


async def _record(answerer: Answerer, request_id: str, tally: Tally) -> None:
    for pause in (*_PATIENCE, None):
        try:
            await in_database(
                usage_record,
                tenant=answerer.tenant,
                kind="chat",
                request_id=request_id,
                base=answerer.base,
                status=tally.status,
                seconds=tally.seconds,
                end_user=answerer.end_user,
                adapter=answerer.adapter,
                api_key=answerer.api_key,
                input_tokens=tally.input_tokens,
                cached_tokens=tally.cached_tokens,
                output_tokens=tally.output_tokens,
                first_token_seconds=tally.first_token_seconds,
            )
        except DatabaseError as error:
            if pause is None:
                # Numbers only, so the line can be counted by hand.
                log.error(
                    "usage not written",
                    completion=request_id,
                    reason=type(error).__name__,
                    input_tokens=tally.input_tokens,
                    output_tokens=tally.output_tokens,
                )
                return
            await asyncio.sleep(pause)
        else:
            return
