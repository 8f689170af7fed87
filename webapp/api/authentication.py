"""`Authorization: Bearer attune_…` → the caller's Scope, for framework views and plain ones."""

from django.http import HttpRequest
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from webapp.config.faults import NotAuthenticated
from webapp.tenants.keys import api_key_resolve
from webapp.tenants.scope import Scope, scope_of_key


def scope_of_request(request: HttpRequest | Request) -> Scope:
    """Who is asking; raises NotAuthenticated. Async views call it through sync_to_async."""
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise NotAuthenticated(
            "Send your API key as 'Authorization: Bearer attune_…'.", code="missing_api_key"
        )
    return scope_of_key(api_key_resolve(key.strip()))


class ApiKeyAuthentication(BaseAuthentication):
    """`request.user` is a Scope. Cookies mean nothing to the API, so neither does a browser's session."""

    def authenticate(self, request: Request) -> tuple[Scope, None]:
        return scope_of_request(request), None

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"
