"""Line numbers of keys in a TOML file, and pydantic's errors with their place."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from stillme.core.errors import Problem, validation_message

Location = Sequence[str | int]

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")


class TomlPlaces:
    """Line numbers of a TOML text by path, such as `editors[1].parameters`."""

    def __init__(self, text: str) -> None:
        self._lines: dict[str, int] = {}
        arrays: Counter[str] = Counter()
        table = ""
        for number, line in enumerate(text.splitlines(), start=1):
            if header := _HEADER.match(line):
                name = _dotted(header[2])
                if header[1] == "[[":
                    table = f"{_indexed(name, arrays)}[{arrays[name]}]"
                    arrays[name] += 1
                else:
                    table = _indexed(name, arrays)
                self._lines.setdefault(table, number)
            elif key := _KEY.match(line):
                name = _dotted(key[1])
                self._lines.setdefault(f"{table}.{name}" if table else name, number)

    def place(self, location: Location) -> str:
        """The path, with the line of it or of the nearest table around it."""
        for length in range(len(location), 0, -1):
            line = self._lines.get(path_of(location[:length]))
            if line is not None:
                return f"line {line}, {path_of(location)}"
        return path_of(location)


def toml_fault(error: tomllib.TOMLDecodeError) -> str:
    """What is wrong with a text that is not TOML, with its line."""
    what, _, where = str(error).partition(" (at ")
    line = where.partition(",")[0].removesuffix(")")
    if what in ("Illegal character '\\n'", "Unterminated string"):
        what = "a closing quotation mark is missing"
    return f"{line}: {what}" if line.startswith("line") else what


def path_of(location: Location) -> str:
    """`("editors", 1, "use")` as `editors[1].use`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def explain(
    error: ValidationError, places: TomlPlaces, prefix: Location, model: type[BaseModel], given: Any
) -> Iterable[Problem]:
    """Pydantic's errors in our words, each with its place."""
    for detail in error.errors(include_url=False):
        location = [*prefix, *(part for part in detail["loc"] if not _is_a_branch(part, detail, given))]
        yield Problem(place=places.place(location), message=validation_message(detail, model))


def _is_a_branch(part: str | int, detail: ErrorDetails, given: Any) -> bool:
    # A union's location names the branch that was tried ("str", "list[str]"), which is not a key of the file.
    value = given
    for step in detail["loc"]:
        if step == part:
            break
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return True
    return (
        isinstance(part, str)
        and detail["type"] not in ("missing", "extra_forbidden")
        and (not isinstance(value, dict) or part not in value)
    )


def _dotted(raw: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in raw.split("."))


def _indexed(name: str, arrays: Counter[str]) -> str:
    """`editors.parameters` below the second `[[editors]]` as `editors[1].parameters`."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        outer = ".".join(parts[:length])
        if arrays[outer]:
            return f"{outer}[{arrays[outer] - 1}].{'.'.join(parts[length:])}"
    return name
