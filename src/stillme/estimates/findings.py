"""Every gap that can make a headline, with its word: the one place where that is decided."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stillme.core.types import Estimate, Interval
from stillme.estimates import headlines
from stillme.estimates.abstention import Place, uneven
from stillme.estimates.estimating import Disparity
from stillme.estimates.families import holm
from stillme.estimates.settings import Settings
from stillme.estimates.standing import Standing, mark
from stillme.estimates.words import Word, smallest_effect, word_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One gap between the groups of a factor."""

    quantity: str
    editor: str
    arm: str
    judge: str
    factor: str
    groups: tuple[str, str]
    """The one with the highest and the one with the lowest value."""
    value: float
    low: float
    high: float
    p: float | None
    """After Holm over the arm's gaps by the judge that decide and can reject; None for a gap that takes no part."""
    smallest_effect: float | None
    """The smallest difference that matters; None where none is declared."""
    word: Word | None
    """None where a group has too few units for one, the judge does not decide, or it abstains unevenly."""
    decides: bool
    """Whether verdicts go by the judge for this quantity."""
    validity: str
    """What calibration says of the judge, or that it abstains unevenly; empty if it passed, or none was asked."""
    units: int
    """Rated units of the group that has fewest."""


def find_gaps(estimates: Iterable[Estimate], standing: Standing, settings: Settings) -> tuple[Finding, ...]:
    """One for each gap of a headline quantity, in the order given."""
    rows = list(estimates)
    silent = uneven(rows)
    gaps = [
        (row, row.outcome)
        for row in rows
        if isinstance(row, Disparity) and isinstance(row.outcome, Interval) and headlines.is_headline(row.quantity)
    ]
    decides = headlines.deciding(standing, {(row.judge, row.quantity) for row, _ in gaps})
    adjusted: dict[int, float] = {}
    for judge_and_arm in dict.fromkeys((row.judge, row.arm) for row, _ in gaps):
        family = [
            (place, row.null)
            for place, (row, _) in enumerate(gaps)
            if (row.judge, row.arm) == judge_and_arm and (row.judge, row.quantity) in decides and row.null
            if _place(row) not in silent
            # A test that cannot reject would only weaken the others.
            if row.null.smallest_p <= 1 - settings.confidence
        ]
        adjusted |= dict(zip((place for place, _ in family), holm([null.omnibus for _, null in family]), strict=True))
    return tuple(
        _finding(
            row,
            outcome,
            adjusted.get(place),
            mark(standing, row.judge, row.quantity) or silent.get(_place(row), ""),
            (row.judge, row.quantity) in decides and _place(row) not in silent,
            settings,
        )
        for place, (row, outcome) in enumerate(gaps)
    )


def _place(row: Disparity) -> Place:
    return row.quantity, row.editor, row.arm, row.judge, row.factor


def _finding(
    gap: Disparity, outcome: Interval, p: float | None, validity: str, decides: bool, settings: Settings
) -> Finding:
    smallest = smallest_effect(gap.quantity, settings.smallest_effects)
    level = 1 - settings.confidence
    return Finding(
        quantity=gap.quantity,
        editor=gap.editor,
        arm=gap.arm,
        judge=gap.judge,
        factor=gap.factor,
        groups=(gap.highest, gap.lowest),
        value=outcome.value,
        low=outcome.low,
        high=outcome.high,
        p=p,
        smallest_effect=smallest,
        word=word_for(outcome, p=p, smallest=smallest, units=gap.units, level=level) if decides else None,
        decides=decides,
        validity=validity,
        units=gap.units,
    )
