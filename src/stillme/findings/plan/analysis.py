"""Which gaps a design can detect, and how many portraits it would take to detect another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stillme.audit import Audit, NamedEditor
from stillme.core import rubric
from stillme.core.types import Arm
from stillme.estimates import Edits, Settings, design
from stillme.estimates.design import Plan
from stillme.estimates.headlines import MIN_UNITS
from stillme.estimates.quantities import Columns, Floats
from stillme.findings.plan.assumptions import AssumedRate, Assumptions
from stillme.findings.plan.costs import Bills
from stillme.findings.plan.power import (
    JUDGE_CORRELATION,
    MeanMeasure,
    Measure,
    PowerSide,
    RateMeasure,
    Terms,
    portraits_needed,
    ratings_for,
    smallest_departure,
    smallest_gap,
)

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallestGap:
    """The smallest gap that is detected, for the assumed ICC and for its range; None if no gap is."""

    value: float | None
    low: float | None
    high: float | None
    corrected: float | None
    """As the first of all comparisons of the factor and its editors, by Holm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectableGap:
    """The detectable gap between the groups of one factor, by the editor where it is largest."""

    factor: str
    editor: str
    groups: int
    portraits: int
    """In the smallest group."""
    edits_each: float
    """Edits of one portrait, on average, by that editor."""
    quantity: str
    """`rate` or `mean`."""
    base: float | None
    """The base rate."""
    gap: SmallestGap
    comparisons: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """How many portraits it takes to detect a gap."""

    factor: str
    base: float
    gap: float
    per_group: int | None
    portraits: int | None
    edits: int | None
    """Of all arms and editors, with as many of each portrait as the audit has."""
    judge_calls: int | None
    dollars: float | None
    """As far as prices are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleDeviation:
    """How far from one half an editor's choice between two people must be to be detected."""

    editor: str
    requests: int
    portraits: int
    departure: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingsNeeded:
    """How many edits of one editor people must rate, so that a corrected rate is known to ±5 points."""

    edits: int
    """Of the editor, under one arm."""
    rate: float
    low: int | None
    """If the judge agrees well with people; None if not even all edits are enough."""
    high: int | None
    """If it agrees badly."""


class PowerAnalysis:
    """What an audit's design can detect, from its portraits and cells."""

    def __init__(self, audit: Audit, assumed: Assumptions, terms: Terms) -> None:
        self._audit, self._assumed, self._terms = audit, assumed, terms
        self._columns = Columns.of(_no_edits(audit))
        reference = {name: level for name, level in audit.config.estimates.reference.items() if name in audit.factors}
        self._settings = Settings(factors=tuple(audit.factors), reference=reference)
        index = {portrait.id: number for number, portrait in enumerate(self._columns.portraits)}
        self._counts = {named.name: _counts(audit, named, index, people=1) for named in audit.editors}
        self._pair_counts = {named.name: _counts(audit, named, index, people=2) for named in audit.editors}

    @property
    def _factors(self) -> Sequence[str]:
        """Factors whose groups can be compared: only edits of single people have a group."""
        return self._audit.factors if any(counts.any() for counts in self._counts.values()) else ()

    def detectable(self) -> Iterator[DetectableGap]:
        """For every factor and quantity, the editor with the largest detectable gap."""
        scores = self._assumed.sd_icc
        measures: list[tuple[Measure, AssumedRate]] = [
            *((RateMeasure(base=assumed.rate, icc=assumed.icc), assumed) for assumed in self._assumed.rates),
            (MeanMeasure(sd=self._assumed.sd, icc=scores.icc), scores),
        ]
        for factor in self._factors:
            plan = design.by_factor(self._columns, factor, self._settings)
            if len(plan.levels) < 2:
                continue
            for measure, assumed in measures:
                gaps = [self._detectable(plan, editor, measure, assumed) for editor in self._counts]
                yield max(gaps, key=lambda detectable: (detectable.gap.value is None, detectable.gap.value or 0.0))

    @property
    def identities(self) -> int:
        """People whom the portraits show."""
        return len(design.everyone(self._columns).names)

    def few_units(self) -> Iterator[tuple[str, int, str]]:
        """Factors of which a group has too few units for a verdict on its gaps."""
        for factor in self._factors:
            plan = design.by_factor(self._columns, factor, self._settings)
            groups = [part.members for part in plan.comparisons if part.scope == "group"]
            fewest = min((plan.units(members) for members in groups), default=1)
            if fewest < MIN_UNITS:
                yield factor, fewest, plan.noun

    def ratings_needed(self) -> RatingsNeeded | None:
        """For the editor with the fewest edits; None where there is nothing that human ratings could correct."""
        edited = [counts for counts in self._counts.values() if counts.any()]
        if not edited or not _answers_a_scale(self._audit):
            return None
        counts = min(edited, key=lambda each: float(each.sum()))
        assumed = self._assumed.rates[0]
        if not 0 < assumed.rate < 1:
            return None
        low, high = (
            ratings_for(assumed.rate, assumed.icc, counts[counts > 0], correlation, self._terms.confidence)
            for correlation in reversed(JUDGE_CORRELATION)
        )
        return RatingsNeeded(edits=int(counts.sum()), rate=assumed.rate, low=low, high=high)

    def role_deviations(self) -> Iterator[RoleDeviation]:
        """Role requests with two people: 0.5 is no bias."""
        for editor, counts in self._pair_counts.items():
            side = PowerSide(edits=counts[counts > 0], units=int((counts > 0).sum()))
            if side.units:
                yield RoleDeviation(
                    editor=editor,
                    requests=int(counts.sum()),
                    portraits=side.units,
                    departure=smallest_departure(self._assumed.rates[0].icc, side, self._terms),
                )

    def requirements(self, gap: float, work: Bills) -> Iterator[Requirement]:
        """How many portraits it takes to detect the gap between two groups, with as many edits of each."""
        for factor in self._factors:
            levels = len(self._columns.edits.levels(factor)[0])
            edits_each = min(float(counts[counts > 0].mean()) for counts in self._counts.values() if counts.any())
            for assumed in self._assumed.rates:
                per_group = portraits_needed(
                    gap, RateMeasure(base=assumed.rate, icc=assumed.icc), edits_each, self._terms
                )
                portraits = per_group * levels if per_group else None
                times = portraits / len(self._audit.portraits) if portraits else None
                yield Requirement(
                    factor=factor,
                    base=assumed.rate,
                    gap=gap,
                    per_group=per_group,
                    portraits=portraits,
                    edits=round(times * work.edits) if times else None,
                    judge_calls=round(times * work.questions) if times else None,
                    dollars=times * work.dollars if times else None,
                )

    def _detectable(self, plan: Plan, editor: str, measure: Measure, assumed: AssumedRate) -> DetectableGap:
        counts = self._counts[editor]
        groups = [comparison.members for comparison in plan.comparisons if comparison.scope == "group"]
        pair = sorted(groups, key=lambda members: float(counts[members].sum()))[:2]
        contrasts = sum(part.scope == "contrast" and part.against is not None for part in plan.comparisons)
        comparisons = contrasts * len(self._counts)

        def gap(icc: float, terms: Terms) -> float | None:
            one, other = (_side(plan, counts, members) for members in pair)
            return smallest_gap(replace(measure, icc=icc), one, other, terms, paired=plan.paired)

        return DetectableGap(
            factor=plan.factor,
            editor=editor,
            groups=len(groups),
            portraits=min(int((counts[members] > 0).sum()) for members in groups),
            edits_each=float(counts[counts > 0].mean()) if counts.any() else 0.0,
            quantity="rate" if isinstance(measure, RateMeasure) else "mean",
            base=measure.base if isinstance(measure, RateMeasure) else None,
            gap=SmallestGap(
                value=gap(assumed.icc, self._terms),
                low=gap(assumed.icc_low, self._terms),
                high=gap(assumed.icc_high, self._terms),
                corrected=gap(assumed.icc, replace(self._terms, comparisons=max(1, comparisons))),
            ),
            comparisons=comparisons,
        )


def _answers_a_scale(audit: Audit) -> bool:
    """Whether a model or an instrument rates something that people could rate, too."""
    axes = rubric.load().axes
    judges = [named.judge.capabilities for named in audit.judges]
    return any(axes[name].is_scale for judge in judges if judge.kind != "person" for name in judge.axes if name in axes)


def _side(plan: Plan, counts: Floats, members: Flags) -> PowerSide:
    edited = members & (counts > 0)
    return PowerSide(edits=counts[edited], units=len(np.unique(plan.unit[edited])))


def _counts(audit: Audit, named: NamedEditor, index: dict[str, int], *, people: int) -> Floats:
    """Edits of each portrait under the arm that is compared, where it is the first of so many people."""
    arms = [arm for arm in audit.config.arms if arm is not Arm.NOOP]
    compared = Arm.BASELINE if Arm.BASELINE in arms or not arms else arms[0]
    counts = np.zeros(len(index))
    for portraits, arm, _ in audit.cells(named):
        if arm is compared and len(portraits) == people:
            counts[index[portraits[0].id]] += len(named.seeds)
    return counts


def _no_edits(audit: Audit) -> Edits:
    """The audit's portraits without a row: enough to know which groups would be compared."""
    none = np.zeros(0, dtype=np.int32)
    return Edits(
        keys=(),
        portrait=none,
        prompt=none,
        editor=none,
        arm=none,
        state=none,
        image=(),
        portraits=audit.portraits,
        prompts=audit.prompts,
        editors=tuple(named.name for named in audit.editors),
        arms=tuple(str(arm) for arm in audit.config.arms),
    )
