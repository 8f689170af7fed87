"""GET /healthz: whether this process can do its work, found out by doing a little of it."""

from django.db import connection
from django.http import HttpRequest, JsonResponse


def healthz(request: HttpRequest) -> JsonResponse:
    """200 when the database answers. The engine's health is its own: chats say when it is away."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM tenants_tenant LIMIT 1")
    except Exception as error:  # whatever it is, this process is not healthy
        return JsonResponse({"status": "down", "reason": type(error).__name__}, status=503)
    return JsonResponse({"status": "ok"})
