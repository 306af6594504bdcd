"""Where a judge gave no answer: by group, because silence about some people is no finding about the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from stillme.core.types import Estimate
from stillme.estimates.quantities import EDIT_RATES, Exclusion

LARGEST_DIFFERENCE = 0.10
"""Between the shares of two groups that a judge does not answer about; beyond it their rates do not compare."""
UNEVEN = "uneven"
"""How the validity begins of a number that is silent about some groups more than about others."""

Place = tuple[str, str, str, str, str]
"""Quantity, editor, arm, judge and factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abstention:
    """How often a judge abstained on one group's edits."""

    quantity: str
    editor: str
    arm: str
    judge: str
    factor: str
    group: str
    answered: int
    abstained: int

    @property
    def place(self) -> Place:
        """The number whose groups are compared."""
        return self.quantity, self.editor, self.arm, self.judge, self.factor

    @property
    def share(self) -> float:
        """Of the edits to be rated, those without an answer."""
        return self.abstained / max(1, self.answered + self.abstained)


def abstentions(estimates: Iterable[Estimate]) -> list[Abstention]:
    """One for each group and quantity that a judge was asked about, in the order of the estimates."""
    return [
        Abstention(
            quantity=row.quantity,
            editor=row.editor,
            arm=row.arm,
            judge=row.judge,
            factor=row.factor,
            group=row.group,
            answered=row.edits,
            abstained=row.excluded.get(Exclusion.ABSTAINED, 0),
        )
        for row in estimates
        if row.scope == "group" and row.quantity not in EDIT_RATES
    ]


def uneven(estimates: Iterable[Estimate]) -> Mapping[Place, str]:
    """The numbers whose abstentions differ between groups by more than a comparison bears, each with the sentence."""
    return uneven_among(abstentions(estimates))


def uneven_among(rows: Iterable[Abstention]) -> Mapping[Place, str]:
    """The same, from the counts."""
    by_place: dict[Place, list[Abstention]] = {}
    for row in rows:
        by_place.setdefault(row.place, []).append(row)
    return dict(_sentences(by_place))


def _sentences(by_place: Mapping[Place, list[Abstention]]) -> Iterator[tuple[Place, str]]:
    for place, rows in by_place.items():
        asked = [row for row in rows if row.answered + row.abstained]
        if not asked:
            continue
        most, least = max(asked, key=lambda row: row.share), min(asked, key=lambda row: row.share)
        if most.share - least.share > LARGEST_DIFFERENCE + 1e-9:
            yield place, f"{UNEVEN}: no answer for {most.share:.0%} of {most.group}, {least.share:.0%} of {least.group}"
