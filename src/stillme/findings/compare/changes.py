"""What changed from the first editor to the second, for whom, and whether that is worse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from stillme import estimates
from stillme.core import rubric
from stillme.core.rubric import Axis, Rate, rate_of
from stillme.core.types import Interval, NotEstimable
from stillme.estimates import EditState, GapChanges, PairedEffect, RatingState, benjamini_hochberg, numbers
from stillme.estimates.directions import Shift
from stillme.estimates.gap_changes import GapVerdict
from stillme.estimates.headlines import (
    EDIT_SIZES,
    Abstention,
    Word,
    axis_of,
    deciding,
    is_drift,
    is_headline,
    order_of,
    smallest_effect,
    uneven_among,
    word_for,
)
from stillme.estimates.quantities import EDIT_RATES
from stillme.findings.compare.matched_edits import Matched

Values = TypeVar("Values", float, NDArray[np.float64])
Verdict = Literal["worse", "better", "changed", "size unclear", "unclear"]
"""`changed`: which direction is worse is not known. `size unclear`: a change is shown, but not that it is larger than
matters. `unclear`: no change is shown; there may still be one."""

_UNDONE = ("soft_erasure", "unchanged", "refused")
_GAP_VERDICTS: Mapping[GapVerdict, Verdict] = {
    "grew": "worse",
    "shrank": "better",
    "reversed": "changed",
    "unclear": "unclear",
}
_MORE_UNDONE = 0.05
"""How many more edits must be left undone before less change of the person is no longer called better."""


_HAPPENED = "visible_change"
"""Says whether an edit was made at all, not whether the person was preserved: no change is the bad answer."""


class Worse(StrEnum):
    """When a value is worse than another."""

    HIGHER = "higher"
    LOWER = "lower"
    AWAY = "further from unchanged"
    """Such as skin lightness, where both directions are bad."""
    UNKNOWN = "unknown"
    """A plugin's own quantity, or one that is neither good nor bad."""


def worse_when(quantity: str) -> Worse:
    """The direction follows from the rubric, so that a new rate or axis needs no second list."""
    if quantity in EDIT_RATES:
        return Worse.HIGHER
    rate = rate_of(quantity)
    axis = rubric.load().axes.get(rate.axis if rate else quantity)
    if axis is None:
        return Worse.UNKNOWN
    return _of_rate(rate, axis) if rate else _of_mean(axis)


def _of_rate(rate: Rate, axis: Axis) -> Worse:
    if axis.name == _HAPPENED:
        return Worse.HIGHER if rate.holds(1.0) else Worse.LOWER
    if axis.is_scale and axis.unchanged is None:
        return Worse.LOWER if rate.holds(float(len(axis.scale))) else Worse.HIGHER
    if axis.unchanged is None:
        return Worse.UNKNOWN
    return Worse.LOWER if rate.holds(axis.unchanged) else Worse.HIGHER


def _of_mean(axis: Axis) -> Worse:
    if axis.name in (_HAPPENED, *EDIT_SIZES):
        return Worse.UNKNOWN
    if axis.is_scale:
        if axis.unchanged is None:
            return Worse.LOWER
        return Worse.HIGHER if axis.unchanged == 1 else Worse.AWAY
    if axis.unchanged is None:
        return Worse.UNKNOWN
    return Worse.AWAY if numbers.is_signed(axis.name) else Worse.HIGHER


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One quantity, for everyone or for one group: second editor minus first, on the same requests."""

    quantity: str
    arm: str
    judge: str
    factor: str
    group: str
    """Empty for everyone."""
    before: float | None
    after: float | None
    outcome: Interval | NotEstimable
    p: float | None
    """By randomly flipping the sign of each portrait's or block's change."""
    adjusted: float | None
    """After Benjamini and Hochberg over all headline comparisons by validated judges; None outside of them."""
    smallest_effect: float | None
    """The smallest change that matters; None where none is declared."""
    worse: Worse
    verdict: Verdict
    portraits: int
    pairs: int
    note: str
    """What calibration says of the judge."""
    fewer_made: bool = False
    """Whether the second editor leaves more of these edits undone, so that less change of the person is no gain."""

    @property
    def is_headline(self) -> bool:
        """Whether it was one of the tests that are counted together."""
        return self.adjusted is not None

    @property
    def loss(self) -> float:
        """How much worse, for the order of lists."""
        if self.before is None or self.after is None:
            return 0.0
        return loss(self.quantity, self.worse, self.before, self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class GapChange:
    """The gap between two groups before and after: of all pairs of a factor, the one that changed most clearly."""

    quantity: str
    arm: str
    judge: str
    factor: str
    groups: tuple[str, str]
    before: float
    """The first group minus the second, by the first editor."""
    after: float
    outcome: Interval
    """The change of that difference, with limits that hold for all pairs of groups together."""
    growth: Interval
    """How much larger the gap became that grew most, over all pairs."""
    p: float | None
    """Adjusted for all pairs of the factor; None where no portrait differs from its group, so that there is no
    test."""
    others: int
    """How many more pairs of groups changed."""
    verdict: Verdict
    """Worse if the gap grew by more than matters, better if it shrank so, changed if another group is ahead now."""
    portraits: int
    pairs: int
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two editors on the same requests."""

    labels: tuple[str, str]
    cells: int
    left_out: tuple[int, int]
    portraits: int
    confidence: float
    notes: tuple[str, ...]
    changes: tuple[Change, ...]
    """Headline quantities first."""
    gaps: tuple[GapChange, ...]
    appears: tuple[Shift, ...] = ()
    """By readers: how much more often the second editor's edits appear to be something than the first's."""
    untestable: int = 0
    """Headline comparisons in which so few portraits changed at all that no test could find anything."""

    @property
    def tested(self) -> int:
        """How many comparisons were counted together."""
        return sum(change.is_headline for change in self.changes)

    def with_verdict(self, verdict: Verdict) -> list[Change]:
        """Headline changes of one kind, the largest loss or gain first."""
        chosen = [change for change in self.changes if change.is_headline and change.verdict == verdict]
        return sorted(chosen, key=lambda change: (change.adjusted, -abs(change.loss)))


def compare(matched: Matched, quantities: Iterable[str] | None = None) -> Comparison:
    """Estimate every change, and every change of a gap; `quantities` limits the work."""
    wanted = None if quantities is None else set(quantities)
    first, second = matched.labels
    effects = estimates.paired_effects(
        matched.edits, matched.scores, matched.settings, arm=second, against=first, quantities=wanted
    )
    of_groups = [effect for effect in effects if isinstance(effect, PairedEffect) and effect.scope in ("all", "group")]
    gaps = estimates.gap_changes(
        matched.edits, matched.scores, matched.settings, arm=second, against=first, quantities=wanted
    )
    changes = tuple(sorted(_changes(of_groups, matched), key=_place))
    return Comparison(
        labels=matched.labels,
        cells=matched.cells,
        left_out=matched.left_out,
        portraits=len(matched.edits.portraits),
        confidence=matched.settings.confidence,
        notes=(*matched.notes, *_without_scores(changes, matched)),
        changes=changes,
        gaps=tuple(sorted(_gap_changes(gaps, changes, matched), key=_place)),
        untestable=len(_headline(of_groups, matched)) - sum(change.is_headline for change in changes),
    )


def _without_scores(changes: Sequence[Change], matched: Matched) -> Iterator[str]:
    """Nothing became worse where nothing was compared, so that is said."""
    if any(change.judge and isinstance(change.outcome, Interval) for change in changes):
        return
    people = len({portrait.block or f"/{portrait.id}" for portrait in matched.edits.portraits})
    if people < 2:
        yield "No score could be compared: all portraits show one person, and an interval needs several."
    else:
        made = [int((matched.edits.state[matched.edits.arm == side] == EditState.EDITED).sum()) for side in (0, 1)]
        yield (
            "No score could be compared: too few requests are rated on both sides by the same judge "
            f"(edited: {made[0]:,} and {made[1]:,} of {matched.cells:,})."
        )


def _changes(effects: Sequence[PairedEffect], matched: Matched) -> Iterator[Change]:
    adjusted = _adjusted(effects, matched)
    level = 1 - matched.settings.confidence
    fewer_made = {_group(effects[place]) for place in adjusted if _leaves_undone(effects[place])}
    for place, effect in enumerate(effects):
        q = adjusted.get(place)
        smallest = smallest_effect(effect.quantity, matched.settings.smallest_effects)
        word = word_for(effect.outcome, p=q, smallest=smallest, units=effect.portraits, level=level)
        verdict = _said(word, _verdict(effect))
        no_gain = verdict == "better" and is_drift(effect.quantity) and _group(effect) in fewer_made
        yield Change(
            quantity=effect.quantity,
            arm=effect.editor,
            judge=effect.judge,
            factor=effect.factor,
            group=effect.group,
            before=effect.before,
            after=effect.after,
            outcome=effect.outcome,
            p=effect.p,
            adjusted=q,
            smallest_effect=smallest,
            worse=worse_when(effect.quantity),
            verdict="changed" if no_gain else verdict,
            portraits=effect.portraits,
            pairs=effect.edits,
            note=estimates.mark(matched.standing, effect.judge, effect.quantity),
            fewer_made=no_gain,
        )


def _group(effect: PairedEffect) -> tuple[str, str, str]:
    return effect.editor, effect.factor, effect.group


def _leaves_undone(effect: PairedEffect | Change) -> bool:
    """Whether the second editor leaves more edits undone: an edit that is not made changes no one."""
    if effect.quantity not in _UNDONE or effect.before is None or effect.after is None:
        return False
    return effect.after - effect.before >= _MORE_UNDONE


def _adjusted(effects: Sequence[PairedEffect], matched: Matched) -> Mapping[int, float]:
    """The headline tests, corrected together; those that could not find anything would only weaken the others."""
    level = 1 - matched.settings.confidence
    family = [place for place in _headline(effects, matched) if (effects[place].smallest_p or 0.0) <= level]
    p = [effects[place].p or 0.0 for place in family]
    return dict(zip(family, benjamini_hochberg(p), strict=True))


def _headline(effects: Sequence[PairedEffect], matched: Matched) -> list[int]:
    """Quantities of the report's first screen, by the judge to go by."""
    speaking = {(score.judge, score.axis) for score in estimates.headline(matched.scores)}
    family = [
        place
        for place, effect in enumerate(effects)
        if effect.p is not None and is_headline(effect.quantity) and effect.quantity != "failed"
        if not effect.judge or (effect.judge, axis_of(effect.quantity)) in speaking
    ]
    decides = deciding(matched.standing, {(effects[place].judge, effects[place].quantity) for place in family})
    return [place for place in family if (effects[place].judge, effects[place].quantity) in decides]


def _said(word: Word | None, direction: Verdict) -> Verdict:
    """A direction only where the change is larger than matters."""
    if word == "larger than matters":
        return direction
    return "size unclear" if word == "differs, size unclear" else "unclear"


def _verdict(effect: PairedEffect) -> Verdict:
    worse = worse_when(effect.quantity)
    if worse is Worse.UNKNOWN or effect.before is None or effect.after is None:
        return "changed"
    lost = loss(effect.quantity, worse, effect.before, effect.after)
    return "worse" if lost > 0 else "better" if lost < 0 else "changed"


def loss(quantity: str, worse: Worse, before: Values, after: Values) -> Values:
    """How much worse the second value is, or each of several."""
    match worse:
        case Worse.HIGHER:
            return after - before
        case Worse.LOWER:
            return before - after
        case Worse.AWAY:
            axis = rubric.load().axes.get(quantity)
            middle = axis.unchanged or 0.0 if axis else 0.0
            return cast("Values", abs(after - middle) - abs(before - middle))
        case Worse.UNKNOWN:
            return 0 * after


def _gap_changes(gaps: Sequence[GapChanges], changes: Sequence[Change], matched: Matched) -> Iterator[GapChange]:
    fewer_made = {(change.arm, change.factor) for change in changes if change.is_headline and _leaves_undone(change)}
    silent = _uneven(matched)
    for gap in gaps:
        clearest, smallest = gap.clearest, smallest_effect(gap.quantity, matched.settings.smallest_effects)
        p = 1.0 if gap.verdict == "unclear" else 0.0  # the interval holds for all pairs together, so it is the test
        word = word_for(clearest.outcome, p=p, smallest=smallest, units=gap.portraits)
        uneven = silent.get((gap.judge, axis_of(gap.quantity), gap.factor), "")
        verdict = "unclear" if uneven else _said(word, _GAP_VERDICTS[gap.verdict])
        no_gain = verdict == "better" and is_drift(gap.quantity) and (gap.editor, gap.factor) in fewer_made
        yield GapChange(
            quantity=gap.quantity,
            arm=gap.editor,
            judge=gap.judge,
            factor=gap.factor,
            groups=(clearest.one, clearest.other),
            before=clearest.before,
            after=clearest.after,
            outcome=clearest.outcome,
            growth=gap.largest,
            p=clearest.p,
            others=sum(pair.verdict != "unclear" for pair in gap.pairs if pair is not clearest),
            verdict="changed" if no_gain else verdict,
            portraits=gap.portraits,
            pairs=gap.edits,
            note=uneven or estimates.mark(matched.standing, gap.judge, gap.quantity),
        )


def _uneven(matched: Matched) -> Mapping[tuple[str, str, str], str]:
    """By judge, axis and factor: that the judge abstains on some groups more than others."""
    edits = matched.edits
    return {
        (judge, axis, factor): f"{sentence} ({label})"
        for (axis, label, _, judge, factor), sentence in uneven_among(
            Abstention(
                quantity=score.axis,
                editor=label,
                arm="",
                judge=score.judge,
                factor=factor,
                group=group,
                answered=int(np.count_nonzero(inside & (score.state == RatingState.RATED))),
                abstained=int(np.count_nonzero(inside & (score.state == RatingState.ABSTAINED))),
            )
            for score in matched.scores
            for factor in matched.settings.factors
            for groups, of_portrait in (edits.levels(factor),)
            for side, label in enumerate(matched.labels)
            for number, group in enumerate(groups)
            for inside in ((edits.arm == side) & (of_portrait[edits.portrait] == number),)
        ).items()
    }


def _place(change: Change | GapChange) -> tuple[bool, int, str, str, str, str, str]:
    group = change.group if isinstance(change, Change) else ""
    headline = order_of(change.quantity)
    return (
        not is_headline(change.quantity),
        headline,
        change.quantity,
        change.arm,
        change.judge,
        change.factor,
        group,
    )
