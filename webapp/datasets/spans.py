"""A place in a text that holds something sensitive."""

from typing import Literal, NamedTuple

Kind = Literal["private_key", "api_key", "password", "card_number", "iban", "email", "phone"]


class Span(NamedTuple):
    """`text[start:end]` is of this kind."""

    start: int
    end: int
    kind: Kind
