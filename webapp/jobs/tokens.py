"""Secrets between dispatcher, web and trainers. The database holds HMACs only."""

import hmac
import secrets
import uuid

from django.utils.crypto import salted_hmac


def dispatch_token_new() -> tuple[str, str]:
    """A token for one message, and the HMAC to store."""
    token = secrets.token_urlsafe(32)
    return token, stored(token)


def epoch_token(job: uuid.UUID, epoch: int, worker: uuid.UUID) -> str:
    """The token of one epoch. Derived, so that a worker whose answer was lost gets the same one again."""
    return salted_hmac(
        "attune.epoch_token", f"{job.hex}:{epoch}:{worker.hex}", algorithm="sha256"
    ).hexdigest()


def stored(token: str) -> str:
    return salted_hmac("attune.job_token", token, algorithm="sha256").hexdigest()


def matches(token: str, hmac_stored: str) -> bool:
    """In constant time; an empty stored HMAC matches nothing."""
    return hmac.compare_digest(stored(token), hmac_stored)
