"""API keys: `attune_<8 to find it by>_<32 secret><6 checksum>`, in base 62. Only an HMAC is stored.

The checksum lets a typo, and a scanner for leaked keys, be told from a real key without the database.
"""

import hmac
import re
import secrets
import string
import zlib
from datetime import timedelta

from django.db.models import Q
from django.db.models.functions import Now
from django.utils.crypto import salted_hmac

from webapp.config.faults import NotAuthenticated
from webapp.tenants.models import ApiKey, EndUser, Tenant, User

_ALPHABET = string.digits + string.ascii_letters
_KEY = re.compile(r"(?P<prefix>attune_[0-9A-Za-z]{8})_(?P<secret>[0-9A-Za-z]{32})(?P<check>[0-9A-Za-z]{6})")


def api_key_create(
    *, tenant: Tenant, name: str, end_user: EndUser | None = None, created_by: User | None = None
) -> tuple[ApiKey, str]:
    """A new key and its text, which nobody can read again. With `end_user` it acts for that end user only."""
    if end_user is not None and end_user.tenant_id != tenant.id:
        raise ValueError("a user key's end user belongs to the key's tenant")
    prefix, secret = f"attune_{_random(8)}", _random(32)
    text = f"{prefix}_{secret}{_checksum(prefix + secret)}"
    key = ApiKey.objects.create(
        tenant=tenant, end_user=end_user, name=name, prefix=prefix, hmac=_hmac(text), created_by=created_by
    )
    return key, text


def api_key_resolve(text: str) -> ApiKey:
    """The live key with this text (tenant, end user and their membership loaded); raises NotAuthenticated otherwise.

    The key of a person whose login is switched off is as good as revoked.
    """
    match = _KEY.fullmatch(text)
    if match is None or _checksum(match["prefix"] + match["secret"]) != match["check"]:
        raise _refused()
    live = ApiKey.objects.filter(prefix=match["prefix"], revoked_at=None)
    key = live.select_related("tenant", "end_user__membership__user").first()
    # Compared even when there is no such key, so that both answers take the same time.
    if not hmac.compare_digest(_hmac(text), key.hmac if key else "") or key is None:
        raise _refused()
    member = key.member
    if member is not None and not member.user.is_active:
        raise _refused()
    _touch(key)
    return key


def api_key_revoke(*, key: ApiKey) -> None:
    """From the next request on, the key is refused."""
    ApiKey.objects.filter(id=key.id, revoked_at=None).update(revoked_at=Now())


def _touch(key: ApiKey) -> None:
    """Remember the last use, to the minute: a write for each request would be a write for each token of a chat."""
    stale = Q(last_used_at=None) | Q(last_used_at__lt=Now() - timedelta(minutes=1))
    ApiKey.objects.filter(stale, id=key.id).update(last_used_at=Now())


def _refused() -> NotAuthenticated:
    return NotAuthenticated(
        "This API key is not valid. Keys begin with 'attune_' and are sent as 'Authorization: Bearer attune_…'; "
        "make a new one in the dashboard if this one was revoked.",
        code="invalid_api_key",
    )


def _hmac(text: str) -> str:
    return salted_hmac("attune.api_key", text, algorithm="sha256").hexdigest()


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def _checksum(text: str) -> str:
    value, digits = zlib.crc32(text.encode()), ""
    for _ in range(6):
        value, digit = divmod(value, len(_ALPHABET))
        digits += _ALPHABET[digit]
    return digits
