"""Text with placeholders: `{seed}` is replaced by a value, `{{` and `}}` stand for braces."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from stillme.core.errors import did_you_mean
from stillme.core.types import Json

_MARK = re.compile(r"\{\{|\}\}|\{([A-Za-z_]\w*(?::\w+)?)\}")


def names_in(template: Json) -> frozenset[str]:
    """The placeholders in a text, or in all texts of nested JSON."""
    return frozenset(match[1] for text in _texts(template) for match in _MARK.finditer(text) if match[1])


def fill(text: str, values: Mapping[str, object]) -> str:
    """The text with its placeholders replaced. Values are not searched for placeholders."""

    def replaced(match: re.Match[str]) -> str:
        return str(values[match[1]]) if match[1] else match[0][0]

    return _MARK.sub(replaced, text)


def fill_json(template: Json, values: Mapping[str, object]) -> Json:
    """Nested JSON with every text filled. Where a text is one placeholder alone, its value stays a number."""

    def filled(text: str) -> Json:
        alone = _MARK.fullmatch(text)
        return values[alone[1]] if alone and alone[1] else fill(text, values)

    return _mapped(template, filled)


def unknown_names(setting: str, template: Json, known: Mapping[str, object] | frozenset[str]) -> Iterator[str]:
    """One sentence per placeholder that is not filled."""
    choices = ", ".join(f"{{{name}}}" for name in sorted(known))
    for name in sorted(names_in(template) - set(known)):
        yield (
            f"`{setting}` has the unknown placeholder {{{name}}}.{did_you_mean(name, known)} Known: {choices}. "
            "Write {{ and }} for braces"
        )


def _texts(template: Json) -> Iterator[str]:
    match template:
        case str():
            yield template
        case dict():
            for value in cast("dict[str, Any]", template).values():
                yield from _texts(value)
        case list() | tuple():
            for value in cast("list[Any]", template):
                yield from _texts(value)
        case _:
            pass


def _mapped(template: Json, change: Callable[[str], Json]) -> Json:
    match template:
        case str():
            return change(template)
        case dict():
            return {name: _mapped(value, change) for name, value in cast("dict[str, Any]", template).items()}
        case list() | tuple():
            return [_mapped(value, change) for value in cast("list[Any]", template)]
        case _:
            return template
