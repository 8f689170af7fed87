"""Idempotency-Key: a repeat of a POST has one effect and gets the first answer again.

Effect and answer are one transaction, so that a process killed in between leaves neither; a repeat that arrives
while the first is at work waits for it.
"""

import hashlib
from collections.abc import Callable
from typing import Any

from django.db import transaction
from rest_framework.request import Request
from rest_framework.response import Response

from webapp.api.models import IdempotentRequest
from webapp.config.database import advisory_lock
from webapp.config.faults import BadRequest, Unprocessable
from webapp.tenants.scope import Scope

_HEADER = "Idempotency-Key"


def once(request: Request, *, route: str, body: bytes, do: Callable[[], dict[str, Any]]) -> Response:
    """Answer with `do()`, or with what it answered when this key came first. `body` is compared by its sha256.

    Raises Unprocessable when the key came with another body before, and whatever `do` raises (nothing is kept then).
    """
    same = _identity(request, route)
    if same is None:
        return Response(do())
    with transaction.atomic():
        advisory_lock(f"{same['api_key'].id}/{route}/{same['key']}")
        before = _replayed(same, body)
        if before is None:
            answer = do()
            IdempotentRequest.objects.create(**same, body_sha256=_sha256(body), answer=answer)
            return Response(answer)
    return before


def answered(request: Request, *, route: str, body: bytes) -> Response | None:
    """The first answer to this key, if there is one: before work that only its `once` makes use of."""
    same = _identity(request, route)
    return None if same is None else _replayed(same, body)


def _identity(request: Request, route: str) -> dict[str, Any] | None:
    """What makes two requests the same; None without a key."""
    key = request.headers.get(_HEADER)
    if key is None:
        return None
    if not 1 <= len(key) <= 255 or not key.isprintable():
        raise BadRequest(f"{_HEADER} has 1 to 255 printable characters.", code="bad_idempotency_key")
    scope: Scope = request.user
    assert scope.api_key is not None, "the API is reached by keys"
    return {"tenant": scope.tenant, "api_key": scope.api_key, "route": route, "key": key}


def _replayed(same: dict[str, Any], body: bytes) -> Response | None:
    before = IdempotentRequest.objects.filter(**same).first()
    if before is None:
        return None
    if before.body_sha256 != _sha256(body):
        raise Unprocessable(
            f"This {_HEADER} was used with another request. Use a new key for a new request.",
            code="idempotency_key_reused",
        )
    return Response(before.answer, headers={"idempotent-replayed": "true"})


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
