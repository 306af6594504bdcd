"""Every gap that can make a headline, with its word: which quantities can, and whose numbers decide.

- `is_headline`, `is_drift`, `deciding`: which quantities the first screen and the figures are about.
- `mark`: the note beside the numbers of judges that were not calibrated on changes of known size, or failed.
- `word_for`: four words for a gap: what its interval and its test say of the smallest effect that matters.
- `uneven`: where a judge gave no answer, by group: silence about some people is not a finding about the others.
- `stands`: whether a gap is there whatever the missing answers would have been.
- `find_gaps`: the one place where all that is decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from stillme.core import rubric
from stillme.core.rubric import axis_of, rate_of
from stillme.core.types import Estimate, Interval, NotEstimable, Settings
from stillme.estimates.estimating import Disparity
from stillme.estimates.permutation import holm
from stillme.estimates.quantities import EDIT_RATES, Exclusion

FAILED_CALIBRATION = "calibration failed"
"""The note of a judge whose number decides nothing."""

CANNOT_TELL = "cannot tell"
"""How the note begins of a judge that is validated, but not on the skin of these people."""

EDIT_MADE = ("success", "soft_erasure", "skipped", "unchanged", "refused")
"""Whether the edit was made; the other headline quantities say what else changed."""

EDIT_MADE_AXES = ("edit_success", "skip", "visible_change")
"""The axes that tell whether an edit was made."""

EDIT_SIZES = ("changed_area", "mean_delta_e")
"""The axes that tell how much of a picture was changed, by which no person is kept or lost."""

HEADLINES = (
    *EDIT_MADE,
    "skin_lightened",
    "skin_darkened",
    "skin_delta_l",
    "race_changed",
    "gender_changed",
    "another_person",
    "identity_drifted",
    "identity_distance",
    "gender_delta",
    "age_change",
    "age_delta_years",
    "age_accuracy",
)
"""In the order of their figures."""


def is_headline(quantity: str) -> bool:
    """Whether the quantity gets a figure. A plugin's own quantities always do."""
    known = rubric.load()
    return quantity in HEADLINES or not (quantity in known.axes or rate_of(quantity) or quantity == "failed")


def is_drift(quantity: str) -> bool:
    """Whether the quantity says how far the person changed: it has a meaning only where an edit was made."""
    axis = rubric.load().axes.get(axis_of(quantity))
    return axis is not None and axis.unchanged is not None and axis.name not in (*EDIT_MADE_AXES, *EDIT_SIZES)


def deciding(standing: Standing, numbers: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Of these (judge, quantity), those that verdicts and the correction for multiple comparisons go by.

    What is counted without a judge, and what a judge is validated for. If no judge is validated for anything, all that
    did not fail calibration; it is marked as not calibrated.
    """
    notes = {(judge, quantity): mark(standing, judge, quantity) for judge, quantity in numbers}
    if any(judge and not note for (judge, _), note in notes.items()):
        return {number for number, note in notes.items() if not note}
    unfit = (FAILED_CALIBRATION, CANNOT_TELL, FAILED_CONTROL_PAIRS)
    return {number for number, note in notes.items() if not note.startswith(unfit)}


def is_unfit(note: str) -> bool:
    """Whether the note on a judge's number means that it decides nothing and is folded away."""
    return note.startswith((FAILED_CALIBRATION, FAILED_CONTROL_PAIRS))


def is_headline_axis(axis: str) -> bool:
    """Whether the axis, or a named rate on it, gets a figure."""
    rates = (rate.name for rate in rubric.load().rates.values() if rate.axis == axis)
    return is_headline(axis) or any(is_headline(name) for name in rates)


def order_of(quantity: str) -> int:
    """The position of a quantity's figure."""
    return HEADLINES.index(quantity) if quantity in HEADLINES else len(HEADLINES)


Standing = Mapping[str, Mapping[str, str]]
"""Judge to axis to `passed`, `failed`, `untested` or `blind_on` some skin tones; an absent judge was never calibrated.

The axis stands for all people of the run, `within` for those of one group where they stand differently.
"""

CONTROL_PAIRS = "*"
"""The name under which a `Standing` keeps how many control pairs a judge got wrong, if that raised the alarm."""

PEOPLE = "people"
"""The name under which a `Standing` keeps that a judge is people: they are what judges are held against."""

FAILED_CONTROL_PAIRS = "failed its control pairs"
"""How the note begins of a judge whose answers in this run are not to be relied on."""

_BLIND = "blind: "
_NOTES = {"passed": "", "failed": "calibration failed", "untested": "not tested on known changes"}


def blind_on(tones: Iterable[str]) -> str:
    """The verdict on an axis that a judge is validated for, but not on these skin tones, which some people have."""
    return _BLIND + ", ".join(tones)


def within(axis: str, factor: str, group: str) -> str:
    """The name under which a `Standing` keeps the verdict on an axis for one group."""
    return f"{axis}@{factor}={group}"


def mark(standing: Standing, judge: str, quantity: str, estimate: Estimate | None = None) -> str:
    """The note beside a judge's number; empty where the judge passed or no judge was asked.

    With `estimate`, what counts are the people it is about: a judge may be validated for one group and not for another.
    """
    if not judge:
        return ""
    axes = standing.get(judge)
    if axes is None:
        return "not calibrated"
    if PEOPLE in axes:
        return ""
    if wrong := axes.get(CONTROL_PAIRS):
        return f"{FAILED_CONTROL_PAIRS} ({wrong})"
    axis = axis_of(quantity)
    verdict = axes.get(axis, "untested")
    if estimate is not None and estimate.scope == "group":
        verdict = axes.get(within(axis, estimate.factor, estimate.group), verdict)
    if verdict.startswith(_BLIND):
        return f"cannot tell on {verdict.removeprefix(_BLIND)} skin"
    return _NOTES[verdict]


Word = Literal["larger than matters", "smaller than matters", "differs, size unclear", "unclear"]

MIN_UNITS = 5
"""Units of each group below which a gap has a number and no word."""


def smallest_effect(quantity: str, own: Mapping[str, float]) -> float | None:
    """The smallest difference that matters, in the quantity's own unit; `own` are the audit's, before the rubric's."""
    known = rubric.load()
    axis = known.axes.get(quantity)
    kind = "rate" if quantity in EDIT_RATES or rate_of(quantity) else "scale" if axis and axis.is_scale else ""
    for effects in (own, known.smallest_effects):
        for name in (quantity, kind):
            if name in effects:
                return effects[name]
    return None


def word_for(
    gap: Interval | NotEstimable, *, p: float | None, smallest: float | None, units: int, level: float = 0.05
) -> Word | None:
    """The word for a gap whose test has this p-value after correction; None where there are too few units for any."""
    if isinstance(gap, NotEstimable) or units < MIN_UNITS:
        return None
    differs = p is not None and p <= level
    if smallest is not None:
        if differs and (gap.low > smallest or gap.high < -smallest):
            return "larger than matters"
        if -smallest < gap.low and gap.high < smallest:
            return "smaller than matters"
    return "differs, size unclear" if differs else "unclear"


LARGEST_DIFFERENCE = 0.10
"""Between the shares of two groups that a judge does not answer about; beyond it their rates do not compare."""
UNEVEN = "uneven"
"""How the validity begins of a number that is silent about some groups more than about others."""

Place = tuple[str, str, str, str, str]
"""Quantity, editor, arm, judge and factor."""


def place_of(row: Estimate | Abstention) -> Place:
    """What a row is of, apart from its group."""
    return row.quantity, row.editor, row.arm, row.judge, row.factor


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
        by_place.setdefault(place_of(row), []).append(row)
    return dict(_sentences(by_place))


def _sentences(by_place: Mapping[Place, list[Abstention]]) -> Iterator[tuple[Place, str]]:
    for place, rows in by_place.items():
        asked = [row for row in rows if row.answered + row.abstained]
        if not asked:
            continue
        most, least = max(asked, key=lambda row: row.share), min(asked, key=lambda row: row.share)
        if most.share - least.share > LARGEST_DIFFERENCE + 1e-9:
            yield place, f"{UNEVEN}: no answer for {most.share:.0%} of {most.group}, {least.share:.0%} of {least.group}"


def stands(gap: Disparity, margin: float | None) -> bool:
    """Whether the gap is beyond the margin, whatever the missing answers would have been."""
    return gap.sure is not None and margin is not None and gap.sure.interval.low > margin


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One gap between the groups of a factor."""

    quantity: str
    editor: str
    arm: str
    judge: str
    factor: str
    groups: tuple[str, str]
    """The one with the highest and the one with the lowest value; of an uneven gap that decides, the surest two."""
    value: float
    """Of an uneven gap that decides, between these two among what was answered; the limits hold whatever is missing."""
    low: float
    high: float
    p: float | None
    """After Holm over the arm's gaps by the judge that decide and can reject; None for a gap that takes no part."""
    smallest_effect: float | None
    """The smallest difference that matters; None where none is declared."""
    word: Word | None
    """None where a group has too few units, the judge does not decide, or uneven abstentions could explain the gap."""
    decides: bool
    """Whether verdicts go by this gap."""
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
        if isinstance(row, Disparity) and isinstance(row.outcome, Interval) and is_headline(row.quantity)
    ]
    decides = deciding(standing, {(row.judge, row.quantity) for row, _ in gaps})
    adjusted: dict[int, float] = {}
    for judge_and_arm in dict.fromkeys((row.judge, row.arm) for row, _ in gaps):
        family = [
            (place, row.null)
            for place, (row, _) in enumerate(gaps)
            if (row.judge, row.arm) == judge_and_arm and (row.judge, row.quantity) in decides and row.null
            # An uneven rate may be found all the same: `stands`. A mean may not.
            if place_of(row) not in silent or row.sure is not None
            # A test that cannot reject would only weaken the others.
            if row.null.smallest_p <= 1 - settings.confidence
        ]
        adjusted |= dict(zip((place for place, _ in family), holm([null.omnibus for _, null in family]), strict=True))
    return tuple(
        _finding(
            row,
            outcome,
            adjusted.get(place),
            mark(standing, row.judge, row.quantity),
            silent.get(place_of(row), ""),
            decides=(row.judge, row.quantity) in decides,
            settings=settings,
        )
        for place, (row, outcome) in enumerate(gaps)
    )


def _finding(
    gap: Disparity, outcome: Interval, p: float | None, note: str, silence: str, *, decides: bool, settings: Settings
) -> Finding:
    smallest = smallest_effect(gap.quantity, settings.smallest_effects)
    decides = decides and (not silence or stands(gap, smallest))
    # The group with the highest value of those that were answered may be the one that is hardly answered.
    sure = gap.sure if silence and decides else None
    outcome = sure.interval if sure else outcome
    level = 1 - settings.confidence
    return Finding(
        quantity=gap.quantity,
        editor=gap.editor,
        arm=gap.arm,
        judge=gap.judge,
        factor=gap.factor,
        groups=(sure.highest, sure.lowest) if sure else (gap.highest, gap.lowest),
        value=outcome.value,
        low=outcome.low,
        high=outcome.high,
        p=p,
        smallest_effect=smallest,
        word=word_for(outcome, p=p, smallest=smallest, units=gap.units, level=level) if decides else None,
        decides=decides,
        validity=note or silence,
        units=gap.units,
    )
