"""Every number that the paper prints about editors, judges and people, with its place."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One number of the paper. What the paper does not say is empty."""

    place: str
    """A table, figure, section or appendix."""
    judge: str
    """`models`, `people` or `models - people`."""
    sample: str
    """The part of all edits that the number is over: `rated by people`, `mitigation`; empty for all."""
    editor: str
    """The paper's name; `all` taken together; `each` where a range covers all of them."""
    arm: str
    group: str
    """A race as the paper calls it; empty for everyone."""
    quantity: str
    """What we call it: an axis or a named rate."""
    statistic: str
    """`mean`, `rate`, `change`, `max - min`, `bias`, or a test and what of it is given, such as `p`."""
    sign: str
    """How the value limits the number where the number itself is not given."""
    value: float
    high: float | None
    """The upper end where a range is given."""
    unit: str
    n: int | None
    decimals: int
    """As printed."""
    note: str
    unanswered: str
    """Why no number of a run stands beside it; empty where one can."""


@cache
def published() -> tuple[Published, ...]:
    """All of them, in the paper's order."""
    text = files("stillme.core.paper").joinpath("published.csv").read_text("utf-8")
    return tuple(_published(row) for row in csv.DictReader(text.splitlines(), strict=True))


def _published(row: dict[str, Any]) -> Published:
    numbers: dict[str, Any] = {
        "value": float(row["value"]),
        "high": float(row["high"]) if row["high"] else None,
        "n": int(row["n"]) if row["n"] else None,
        "decimals": len(row["value"].partition(".")[2]),
    }
    return Published(**{**row, **numbers})
