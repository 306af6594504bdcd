"""Rates at every cut of a 1–5 scale: `race_change>=3` is the share of edits with at least a 3."""

from __future__ import annotations

import re

from stillme.core import rubric
from stillme.core.rubric import Axis, Rate

_NAME = re.compile(r"(?P<axis>\w+)(?P<sign>>=|<=)(?P<cut>\d(?:\.\d+)?)")


def cuts(axis: Axis) -> tuple[Rate, ...]:
    """At least 2, 3, 4, 5 and at most 1, 2, 3, 4; nothing for a quantity with a unit of its own.

    Both directions, because an ensemble's 2.5 is neither at most 2 nor at least 3.
    """
    if not axis.is_scale:
        return ()
    top = len(axis.scale)
    upward = (_rate(axis, ">=", str(cut)) for cut in range(2, top + 1))
    downward = (_rate(axis, "<=", str(cut)) for cut in range(1, top))
    return (*upward, *downward)


def rate_of(quantity: str) -> Rate | None:
    """The rate behind a name: a named one of the rubric, or one at a cut."""
    known = rubric.load()
    if named := known.rates.get(quantity):
        return named
    parts = _NAME.fullmatch(quantity)
    axis = known.axes.get(parts["axis"]) if parts else None
    return _rate(axis, parts["sign"], parts["cut"]) if parts and axis else None


def _rate(axis: Axis, sign: str, cut: str) -> Rate:
    upward = sign == ">="
    return Rate(
        name=f"{axis.name}{sign}{cut}",
        title=f"{axis.title} {'≥' if upward else '≤'} {cut}",
        axis=axis.name,
        at_least=float(cut) if upward else None,
        at_most=None if upward else float(cut),
    )
