"""Idempotency-Key: a repeat of a POST has one effect and gets the first answer again.

Effect and answer are one transaction, so that a process killed in between leaves neither; a repeat that arrives
while the first is at work waits for it.
"""

import hashlib
from collections.abc import Callable
from typing import Any

from django.db import connection, transaction
from rest_framework.request import Request
from rest_framework.response import Response

from webapp.api.models import IdempotentRequest
from webapp.config.faults import BadRequest, Unprocessable
from webapp.tenants.scope import Scope

_HEADER = "Idempotency-Key"


def once(request: Request, *, route: str, body: bytes, do: Callable[[], dict[str, Any]]) -> Response:
    """Answer with `do()`, or with what it answered when this key came first. `body` is compared by its sha256.

    Raises Unprocessable when the key came with another body before, and whatever `do` raises (nothing is kept then).
    """
    key = request.headers.get(_HEADER)
    if key is None:
        return Response(do())
    if not 1 <= len(key) <= 255 or not key.isprintable():
        raise BadRequest(f"{_HEADER} has 1 to 255 printable characters.", code="bad_idempotency_key")
    scope: Scope = request.user
    assert scope.api_key is not None, "the API is reached by keys"
    digest = hashlib.sha256(body).hexdigest()
    with transaction.atomic():
        _lock(f"{scope.api_key.id}/{route}/{key}")
        same = {"tenant": scope.tenant, "api_key": scope.api_key, "route": route, "key": key}
        before = IdempotentRequest.objects.filter(**same).first()
        if before is None:
            answer = do()
            IdempotentRequest.objects.create(**same, body_sha256=digest, answer=answer)
            return Response(answer)
    if before.body_sha256 != digest:
        raise Unprocessable(
            f"This {_HEADER} was used with another request. Use a new key for a new request.",
            code="idempotency_key_reused",
        )
    return Response(before.answer, headers={"idempotent-replayed": "true"})


def _lock(name: str) -> None:
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [number])
