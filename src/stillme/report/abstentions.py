"""Where judges gave no answer, for the report: the group with most and the group with fewest abstentions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stillme.core.types import Arm, Estimate
from stillme.estimates.headlines import Abstention, Place, abstentions, is_headline, uneven
from stillme.estimates.numbers import percent


@dataclass(frozen=True, slots=True, kw_only=True)
class AbstentionRow:
    """One headline quantity by one factor."""

    quantity: str
    judge: str
    editor: str
    factor: str
    most: str
    least: str
    uneven: bool
    """Whether the groups differ by too much to be compared."""


def abstention_rows(estimates: Iterable[Estimate]) -> list[AbstentionRow]:
    """One for each headline quantity and factor on which a judge abstained at all, in the order of the estimates."""
    rows = [row for row in estimates if is_headline(row.quantity)]
    by_place: dict[Place, list[Abstention]] = {}
    for row in abstentions(rows):
        if row.answered + row.abstained:
            by_place.setdefault(row.place, []).append(row)
    silent = uneven(rows)
    return [
        AbstentionRow(
            quantity=quantity,
            judge=judge,
            editor=editor if arm == Arm.BASELINE else f"{editor}, {arm}",
            factor=factor,
            most=_in_words(max(groups, key=lambda group: group.share)),
            least=_in_words(min(groups, key=lambda group: group.share)),
            uneven=place in silent,
        )
        for place, groups in by_place.items()
        for quantity, editor, arm, judge, factor in (place,)
        if any(group.abstained for group in groups)
    ]


def _in_words(row: Abstention) -> str:
    return f"{row.group}: {percent(row.share, 0)} of {row.answered + row.abstained}"
