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


def follow(value: Json, path: str) -> Json:
    """The value at a written path such as `data.0.b64_json`, or None; an empty path is the value itself."""
    steps = path.split(".") if path else []
    for step in steps:
        value = dig(value, int(step) if isinstance(value, list) and step.isdigit() else step)
    return value
