"""When a message was written, as exports say it."""

import math
from datetime import UTC, datetime
from typing import Any

from webapp.datasets.faults import RowError

_FIX = "Upload the export as the app wrote it."


def iso_seconds(value: Any, field: str) -> float:
    """Seconds since 1970 of 2024-05-01T10:00:00, with or without a zone; raises RowError."""
    try:
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError):
        raise RowError(field, "not a date and a time", _FIX) from None


def unix_seconds(value: Any, field: str) -> float:
    """A number, or one in a string (Telegram, Slack); raises RowError."""
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)) or len(str(value)) > 30:
            raise ValueError
        seconds = float(value)
        if not math.isfinite(seconds):
            raise ValueError
        return seconds
    except ValueError:
        raise RowError(field, "not a time in seconds", _FIX) from None
