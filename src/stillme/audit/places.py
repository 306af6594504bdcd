"""Where in a TOML file a key stands, and what pydantic's complaints mean there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from stillme.errors import Problem, did_you_mean

Location = Sequence[str | int]

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")


class Places:
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


def path_of(location: Location) -> str:
    """`("editors", 1, "use")` as `editors[1].use`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def explain(
    error: ValidationError, places: Places, prefix: Location, model: type[BaseModel], given: Any
) -> Iterable[Problem]:
    """Pydantic's complaints in our words, each with its place."""
    for detail in error.errors(include_url=False):
        location = [*prefix, *(part for part in detail["loc"] if not _is_a_branch(part, detail, given))]
        yield Problem(place=places.place(location), message=_message(detail, model))


def _is_a_branch(part: str | int, detail: ErrorDetails, given: Any) -> bool:
    # A union's location names the branch that was tried ("str", "list[str]"), which is no key of the user's.
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


def _message(detail: ErrorDetails, model: type[BaseModel]) -> str:
    key = str(detail["loc"][-1]) if detail["loc"] else ""
    match detail["type"]:
        case "extra_forbidden":
            known = list(_fields_at(model, detail["loc"][:-1]))
            return f"unknown key {key!r}.{did_you_mean(key, known)} Known here: {', '.join(known) or 'none'}"
        case "missing":
            return f"{key!r} is missing; add it"
        case "literal_error" | "enum":
            return f"{detail['input']!r} is not allowed; write {detail.get('ctx', {}).get('expected', 'another value')}"
        case "too_short":
            return "is empty; give at least one"
        case _:
            said = detail["msg"][0].lower() + detail["msg"][1:]
            return f"{said.replace('input should', 'should')}, not {detail['input']!r}"


def _fields_at(model: type[BaseModel], location: Location) -> Iterable[str]:
    current: type[BaseModel] = model
    for part in location:
        field = current.model_fields.get(str(part)) if isinstance(part, str) else None
        inner = _model_in(field.annotation) if field else None
        if inner is not None:
            current = inner
    return current.model_fields


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model inside `dict[str, Effect]` or `Effect | None`, if there is one."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_model_in(argument) for argument in get_args(annotation))
    return next((model for model in found if model), None)


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
