"""How people's answers relate to the judge's: as measured in a run, or over a stated range.

A corrected number is uncertain for two reasons: the portraits are a sample, and people rated only a part of the edits.
The second depends on how much of people's answers the judge leaves unexplained, and for an informative draw on whether
that is more where models disagree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stillme import rubric
from stillme.estimates import Edits, EditState, RatingState, Scores, Settings, intraclass_correlations, one_judge
from stillme.estimates.agreement import informative_chances, mean_of
from stillme.estimates.quantities import Floats, meets
from stillme.estimates.rounding import NOISE
from stillme.planning.assumptions import ICC, Assumptions, share_of
from stillme.results import Run, disputes
from stillme.types import Arm, Interval

CORRELATION = (0.4, 0.8)
"""Of a judge's answers to single edits with people's, where nobody has measured it."""

MIN_RATED = 30
"""Edits that people rated from which their relation to the judge is measured; fewer say little about it."""

Flags = NDArray[np.bool_]
Codes = NDArray[np.intp]
Range = tuple[float, float]
"""From the best case to the worst; twice the same number where it was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disputed:
    """How far models disagree about each edit of a run: what an informative draw goes by."""

    apart: Floats
    strata: Codes
    rated: Codes
    """Places of the edits that people rated; empty where that is assumed."""
    squares: Floats
    """How far people's answer to each of these is from what the judge explains, squared."""
    weights: Floats
    """How many edits each stands for."""

    def penalty(self, share: float, unexplained: Range) -> Range:
        """The variance that drawing this share of all edits adds, times the number of edits."""
        more = 1 / informative_chances(self.apart, self.strata, share * len(self.apart)) - 1
        if len(self.rated):
            measured = float((self.weights * more[self.rated] * self.squares).sum() / self.weights.sum())
            return measured, measured
        # At best the judge errs in proportion to the disagreement, at worst the two are unrelated.
        squared = np.where(np.isnan(self.apart), np.nanmean(self.apart**2), self.apart**2)
        total = float(squared.sum())
        related = float((more * squared).sum()) / total if total > NOISE else float(more.mean())
        cases = sorted((related, float(more.mean())))
        return cases[0] * unexplained[0], cases[1] * unexplained[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What people's answers to one quantity are like, next to the judge's."""

    quantity: str
    rate: float | None
    """How common it is; None for a mean."""
    variance: float
    """Of people's answers to single edits."""
    icc: float
    unexplained: Range
    """The part of that variance that the judge leaves."""
    correlation: Range
    """Of judge and people, from the lower to the higher."""
    rated: int
    """Edits that people rated, if it was measured."""
    disputed: Disputed | None
    """None where fewer than two answers of models are known."""

    def penalty(self, share: float, *, informative: bool) -> Range | None:
        """The variance that rating only this share adds, times the number of edits; None where it is not known."""
        if informative:
            return self.disputed.penalty(share, self.unexplained) if self.disputed else None
        more = max(0.0, 1 / share - 1)
        return more * self.unexplained[0], more * self.unexplained[1]


def assumed_answers(assumed: Assumptions) -> Iterator[Answers]:
    """Before there is a row: a mean and the assumed rates."""
    yield _assumed("mean", None, assumed.sd**2, assumed.sd_icc.icc)
    for rate in assumed.rates:
        yield _assumed(f"rate {rate.rate:.0%}", rate.rate, rate.rate * (1 - rate.rate), rate.icc)


def _assumed(quantity: str, rate: float | None, variance: float, icc: float, by: Disputed | None = None) -> Answers:
    low, high = CORRELATION
    return Answers(
        quantity=quantity,
        rate=rate,
        variance=variance,
        icc=icc,
        unexplained=(variance * (1 - high**2), variance * (1 - low**2)),
        correlation=CORRELATION,
        rated=0,
        disputed=by,
    )


def answers_in(run: Run) -> Iterator[Answers]:
    """Of every scale that is asked of all edits and that a model or instrument answered: its mean and its rates."""
    results = run.results
    apart = disputes.disagreements(run)
    for axis in rubric.load().axes.values():
        judge = one_judge(results.scores, axis.name) if axis.is_scale and not axis.only else None
        if judge is not None:
            people = [score for score in results.scores if score.axis == axis.name and score.judge in run.design.people]
            yield from answers_on(results.edits, judge, people, chances=results.chances, apart=apart)


def answers_on(
    edits: Edits, judge: Scores, people: Sequence[Scores], *, chances: Floats | None, apart: Floats
) -> Iterator[Answers]:
    """The mean and the rates of the judge's axis; nothing where it answered no edit that is compared."""
    here = _compared(edits) & (judge.state == RatingState.RATED)
    if not here.any():
        return
    pairs = _Pairs.of(edits, here, judge, people, chances, apart)
    iccs = _iccs(edits, judge)
    yield pairs.answers(judge.axis, None, iccs)
    for name, rate in rubric.load().rates.items():
        if rate.axis == judge.axis:
            yield pairs.answers(name, rate, iccs)


def _compared(edits: Edits) -> Flags:
    """Edits of single people under the arm that is compared."""
    alone = np.ones(len(edits), dtype=np.bool_) if edits.second is None else edits.second < 0
    arms = np.array([arm == Arm.BASELINE for arm in edits.arms], dtype=np.bool_)
    if not arms.any():
        arms = ~np.array([arm == Arm.NOOP for arm in edits.arms], dtype=np.bool_)
    return alone & arms[edits.arm] & (edits.state == EditState.EDITED)


def _iccs(edits: Edits, judge: Scores) -> dict[str, float]:
    """The judge's, by quantity, over editors."""
    known: dict[str, list[float]] = {}
    for found in intraclass_correlations(edits, [judge], Settings(factors=())):
        if isinstance(found.icc, Interval):
            known.setdefault(found.quantity, []).append(share_of(found.icc.value))
    return {name: float(np.mean(values)) for name, values in known.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairs:
    """The judge's and people's answers on one axis; NaN where there is none."""

    judge: Floats
    people: Floats
    editor: Codes
    weights: Floats
    apart: Floats
    strata: Codes

    @classmethod
    def of(
        cls,
        edits: Edits,
        answered: Flags,
        judge: Scores,
        people: Sequence[Scores],
        chances: Floats | None,
        apart: Floats,
    ) -> _Pairs:
        said = mean_of(people).value if people else np.full(len(edits), np.nan)
        weights = np.ones(len(edits))
        if chances is not None:
            weights = np.divide(1.0, chances, out=np.zeros(len(edits)), where=chances > NOISE)
        editor = edits.editor[answered].astype(np.intp)
        return cls(
            judge=judge.value[answered],
            people=np.where(weights > 0, said, np.nan)[answered],
            editor=editor,
            weights=weights[answered],
            apart=apart[answered],
            strata=editor,
        )

    def answers(self, quantity: str, rate: rubric.Rate | None, iccs: dict[str, float]) -> Answers:
        judge = self.judge if rate is None else meets(rate, self.judge)
        icc = iccs.get(quantity, ICC)
        rated = np.flatnonzero(~np.isnan(self.people))
        if len(rated) < MIN_RATED:
            value = float(judge.mean())
            variance = float(np.var(judge)) if rate is None else value * (1 - value)
            return _assumed(quantity, None if rate is None else value, variance, icc, self._disputed(rated[:0]))
        people = self.people[rated] if rate is None else meets(rate, self.people[rated])
        weights, editor = self.weights[rated], self.editor[rated]
        one, other = (_centred(values, weights, editor) for values in (people, judge[rated]))
        total = weights.sum()
        variance, judged = (float((weights * part**2).sum() / total) for part in (one, other))
        shared = float((weights * one * other).sum() / total)
        slope = min(1.0, max(0.0, shared / judged)) if judged > NOISE else 0.0
        squares = (one - slope * other) ** 2 * len(rated) / (len(rated) - 1)
        unexplained = float((weights * squares).sum() / total)
        correlation = shared / np.sqrt(variance * judged) if variance * judged > NOISE**2 else 0.0
        return Answers(
            quantity=quantity,
            rate=None if rate is None else float((weights * people).sum() / total),
            variance=variance,
            # A judge that errs on single edits has a smaller share of its variance between portraits, but as large a
            # variance: that is what people are assumed to share with it.
            icc=share_of(icc * judged / variance) if variance > NOISE else icc,
            unexplained=(unexplained, unexplained),
            correlation=(float(correlation), float(correlation)),
            rated=len(rated),
            disputed=self._disputed(rated, squares, weights),
        )

    def _disputed(self, rated: Codes, squares: Floats | None = None, weights: Floats | None = None) -> Disputed | None:
        if np.isnan(self.apart).all():
            return None
        none = np.zeros(0)
        return Disputed(
            apart=self.apart,
            strata=self.strata,
            rated=rated,
            squares=none if squares is None else squares,
            weights=none if weights is None else weights,
        )


def _centred(values: Floats, weights: Floats, editor: Codes) -> Floats:
    """Minus each editor's mean: editors are corrected one at a time."""
    sums, counts = (np.bincount(editor, part) for part in (weights * values, weights))
    return values - (sums / np.maximum(counts, NOISE))[editor]
