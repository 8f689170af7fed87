"""An exception for a log: its type and where it came from, without its text, which may quote what people wrote."""

import traceback
from collections.abc import Iterator


def trace(error: BaseException) -> str:
    """Types and frames of `error` and of what led to it, the first cause first; of a group, of all that it holds."""
    return "\n".join(_told(error, set()))


def _told(error: BaseException, seen: set[int]) -> Iterator[str]:
    if id(error) in seen:
        return
    seen.add(id(error))
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None:
        yield from _told(before, seen)
        yield "which led to"
    yield from (frame.rstrip("\n") for frame in traceback.format_tb(error.__traceback__))
    yield f"{type(error).__module__}.{type(error).__qualname__}"
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield "in which"
            yield from _told(inner, seen)
