"""Read a value from nested JSON whose shape is not guaranteed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from stillme.core.types import Json


def dig(value: Json, *path: str | int) -> Json:
    """The value at `path`, or None where anything on the way has another shape."""
    for step in path:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return None
    return value


def count(value: Json, *path: str | int) -> int:
    """The whole number at `path`, or 0."""
    found = dig(value, *path)
    return found if isinstance(found, int) else 0


def follow(value: Json, path: str) -> Json:
    """The value at a written path such as `data.0.b64_json`, or None; an empty path is the value itself."""
    return next(find(value, path), None) if path else value


def find(value: Json, path: str) -> Iterator[Json]:
    """Every value at a written path in which `*` stands for each entry of a list; none where there is nothing."""
    step, _, rest = path.partition(".")
    listed = cast("list[Json]", value) if isinstance(value, list) else []
    for entry in listed if step == "*" else [dig(value, int(step) if listed and step.isdigit() else step)]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A field of an answer whose value means something."""

    path: str
    values: tuple[Json, ...] = ()
    """Without any, every value but null, false, zero and an empty one."""
    pattern: str = ""
    """Instead of `values`: what its text contains."""
    words: str = ""
    """Path of the words to keep; by default the field itself."""
    pictures: int = 0
    """That are charged nevertheless."""

    def found(self, body: Json) -> Json:
        """The value that marks it; None where nothing does."""
        for value in find(body, self.path):
            if self.pattern:
                matched = re.search(self.pattern, str(value)) is not None
            else:
                matched = (value in self.values or str(value) in self.values) if self.values else bool(value)
            if matched:
                return value
        return None

    def message(self, body: Json) -> str:
        """The words to keep, all on one line."""
        return "; ".join(
            ", ".join(map(str, cast("list[Json]", value))) if isinstance(value, list) else str(value)
            for value in find(body, self.words or self.path)
        )
