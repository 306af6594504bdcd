"""Read a value from nested JSON whose shape nobody guarantees."""

from __future__ import annotations

from stillme.types import Json


def dig(value: Json, *path: str | int) -> Json:
    """The value at `path`, or None where anything on the way has another shape."""
    for step in path:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return None
    return value
