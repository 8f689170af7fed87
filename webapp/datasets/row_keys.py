"""What row formats share: keys that belong to another format, keys that nobody knows, and texts."""

from collections import Counter
from typing import Any

from webapp.datasets.faults import RowError, shown


def keys_check(row: dict[str, Any], *, known: set[str], rivals: set[str], own: str) -> Counter[str]:
    """Notes about unknown keys; raises RowError if keys of another format make it unclear which is meant."""
    if both := sorted(rivals & set(row)):
        raise RowError(
            both[0],
            f"both '{own}' and '{both[0]}': it is unclear which is meant",
            f"Keep one of them; drop '{both[0]}' if the rest is complete.",
        )
    notes: Counter[str] = Counter()
    if unknown := sorted(set(row) - known):
        notes[f"unknown keys were ignored: {', '.join(map(shown, unknown[:5]))}"] += 1
    return notes


def text_of(row: dict[str, Any], key: str) -> str:
    """The row's text, without space around it; raises RowError if it is none. A system text may be empty."""
    value = row.get(key)
    if not isinstance(value, str):
        raise RowError(key, "not text", f'Write "{key}" as a string.')
    if key != "system" and not value.strip():
        raise RowError(key, "empty", f"Write the {key}, or leave the row out.")
    return value.strip()
