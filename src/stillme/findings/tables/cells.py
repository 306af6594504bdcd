"""A result's fields as the cells of a row: an interval is several of them, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, cast

from stillme.core.types import Interval, NotEstimable
from stillme.estimates import numbers

_SUBJECT = ("outcome", "icc")
"""The one number that a row is about needs no prefix."""
_PLAIN = (str, int, float, bool, type(None))
"""What most cells hold; tables have tens of thousands of rows."""


def row_of(result: object) -> dict[str, object]:
    """The cells as they are: numbers are numbers, what is absent is None."""
    row: dict[str, object] = {}
    _fill(row, result, "")
    return row


def text_row_of(result: object) -> dict[str, str]:
    """The cells as a CSV file has them."""
    return {name: value if type(value) is str else _text(value) for name, value in row_of(result).items()}


def _fill(row: dict[str, object], result: object, prefix: str) -> None:
    if is_dataclass(result):
        items = [(name, getattr(result, name)) for name in _names(type(result))]
    else:
        items = list(cast("Mapping[str, Any]", result).items())
    for name, value in items:
        if type(value) in _PLAIN:
            row[prefix + name] = value
        else:
            _fill_cells(row, prefix + name, value)


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(part.name for part in fields(kind))


def _fill_cells(row: dict[str, object], name: str, value: Any) -> None:
    stem = "" if name in _SUBJECT else f"{name}_"
    match value:
        case Interval():
            for part in ("value", "low", "high"):
                row[stem + part] = getattr(value, part) + 0.0
            row[f"{stem}method"] = value.method
        case NotEstimable():
            # The columns of a number are there also where no row has one.
            row.update((f"{stem}{part}", None) for part in ("value", "low", "high"))
            row[f"{stem}not_estimable"] = value.reason
        case Mapping():
            counted = cast("Mapping[str, object]", value)
            row[name] = "; ".join(f"{key}: {count}" for key, count in sorted(counted.items()))
        case _ if is_dataclass(value):
            _fill(row, value, f"{name}_")
        case _:
            row[name] = value


def _text(value: object) -> str:
    if value is None:
        return ""
    return numbers.machine(value) if isinstance(value, float) else str(value)
