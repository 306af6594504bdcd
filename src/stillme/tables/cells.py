"""A result's fields as the cells of a row: an interval is several of them, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, cast

from stillme import numbers
from stillme.types import Interval, NotEstimable

_SUBJECT = ("outcome", "icc")
"""The one number that a row is about needs no prefix."""
_PLAIN = (str, int, float, bool, type(None))
"""What most cells hold; tables have tens of thousands of rows."""


def row_of(result: object) -> dict[str, object]:
    """The cells as they are: numbers are numbers, what is absent is None."""
    return dict(_row(result, ""))


def text_row_of(result: object) -> dict[str, str]:
    """The cells as a CSV file has them."""
    return {name: _text(value) for name, value in row_of(result).items()}


def _row(result: object, prefix: str) -> Iterator[tuple[str, object]]:
    if is_dataclass(result):
        items = [(name, getattr(result, name)) for name in _names(type(result))]
    else:
        items = list(cast("Mapping[str, Any]", result).items())
    for name, value in items:
        if type(value) in _PLAIN:
            yield f"{prefix}{name}", value
        else:
            yield from _cells(f"{prefix}{name}", value)


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(part.name for part in fields(kind))


def _cells(name: str, value: Any) -> Iterator[tuple[str, object]]:
    stem = "" if name in _SUBJECT else f"{name}_"
    match value:
        case Interval():
            for part in ("value", "low", "high"):
                yield f"{stem}{part}", getattr(value, part) + 0.0
            yield f"{stem}method", value.method
        case NotEstimable():
            # The columns of a number are there also where no row has one.
            yield from ((f"{stem}{part}", None) for part in ("value", "low", "high"))
            yield f"{stem}not_estimable", value.reason
        case Mapping():
            counted = cast("Mapping[str, object]", value)
            yield name, "; ".join(f"{key}: {count}" for key, count in sorted(counted.items()))
        case _ if is_dataclass(value):
            yield from _row(value, f"{name}_")
        case _:
            yield name, value


def _text(value: object) -> str:
    if value is None:
        return ""
    return numbers.machine(value) if isinstance(value, float) else str(value)
