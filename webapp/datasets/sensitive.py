"""Secrets and personal identifiers in a text, by kind and place: what a model should not learn to say."""

from collections.abc import Iterator

from webapp.datasets.credentials import credentials
from webapp.datasets.glance import glance
from webapp.datasets.identifiers import identifiers
from webapp.datasets.spans import Kind, Span

#: What reports call each kind: one, and several.
NAMES: dict[Kind, tuple[str, str]] = {
    "private_key": ("private key", "private keys"),
    "api_key": ("API key or token", "API keys or tokens"),
    "password": ("password", "passwords"),
    "card_number": ("card number", "card numbers"),
    "iban": ("bank account (IBAN)", "bank accounts (IBAN)"),
    "email": ("e-mail address", "e-mail addresses"),
    "phone": ("telephone number", "telephone numbers"),
}


def sensitive(text: str) -> Iterator[Span]:
    """Spans in the text's order, none within another: the one that begins first, or that is more of a secret."""
    end = 0
    seen = glance(text)
    for span in sorted([*credentials(text, seen), *identifiers(text, seen)], key=lambda span: span.start):
        if span.start >= end:
            end = span.end
            yield span
