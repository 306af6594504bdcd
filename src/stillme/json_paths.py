"""Read a value from nested JSON whose shape nobody guarantees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

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


def find(value: Json, path: str) -> Iterator[Json]:
    """Every value at a written path in which `*` stands for each entry of a list; none where there is nothing."""
    step, _, rest = path.partition(".")
    if step == "*":
        entries = cast("list[Json]", value) if isinstance(value, list) else []
        found = entries
    else:
        found = [follow(value, step)]
    for entry in found:
        if rest:
            yield from find(entry, rest)
        elif entry is not None:
            yield entry


def leaves(value: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """The written path of every value that is neither an object nor a list, with the value."""
    match value:
        case dict():
            entries = cast("dict[str, Json]", value).items()
        case list():
            entries = enumerate(cast("list[Json]", value))
        case _:
            yield path, value
            return
    for step, entry in entries:
        yield from leaves(entry, f"{path}.{step}" if path else str(step))
