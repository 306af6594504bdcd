"""Compare answers with the truth, and follow the errors: one chart for changes missed, one for false alarms.

The errors that are acceptable come from the judge's calibration, at the upper end of its interval, because it rests on
few portraits itself. Without one they are the limits that a calibration asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from stillme.core.rubric.limits import Truth
from stillme.core.rubric.limits import load as load_limits
from stillme.core.types import Abstained, Assessment, Failed, Json, Rated
from stillme.estimates import cusum
from stillme.estimates.intervals import wilson

if TYPE_CHECKING:
    from stillme.runs.control_pairs.pairs import KnownPair  # makes pictures: readers of answers need none

Chart = Literal["missed", "false_alarms"]
CHARTS: tuple[Chart, ...] = ("missed", "false_alarms")
FALSE_ALARMS = 0.01
"""How often a judge that is as good as its calibration raises an alarm in a whole run; both charts share it."""
_CONFIDENCE = 0.95
_EVERYONE = "everyone"
_LEAST, _MOST = 0.01, 0.9
"""Acceptable error rates are kept between these: a judge without a single error in calibration may still make one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One thing that an answer got right or wrong, for a chart."""

    chart: Chart
    acceptable: float
    """The error rate."""
    error: bool


@dataclass(frozen=True, slots=True)
class Expectations:
    """What a judge's calibration, or its absence, lets one expect."""

    calibration: Mapping[str, Json] | None = None

    def right(self, axis: str, truth: Truth) -> float:
        """The share of right answers: as calibrated, else the least that calibration asks for."""
        limits = load_limits().axes[axis]
        measure, least = ("sensitivity", limits.sensitivity) if truth == "changed" else ("false_alarm", 0.0)
        share = self._calibrated(axis, measure)
        if truth == "changed":
            return float(share["value"]) if share else least
        return 1 - (float(share["value"]) if share else limits.false_alarm)

    def knows(self, axis: str, truth: Truth) -> bool:
        """Whether calibration tells."""
        return self._calibrated(axis, "sensitivity" if truth == "changed" else "false_alarm") is not None

    def acceptable(self, truths: Mapping[str, Truth]) -> dict[Chart, float]:
        """The largest error rate that is no reason for an alarm, by chart."""
        changed = [axis for axis, truth in truths.items() if truth == "changed"]
        same = [axis for axis, truth in truths.items() if truth == "unchanged"]
        rates: dict[Chart, float] = {}
        if changed:
            # Several axes may be asked to notice one change: missing it on any of them is an error.
            rates["missed"] = self._bounded(changed, "changed", "sensitivity")
        if same:
            rates["false_alarms"] = self._bounded(same, "unchanged", "false_alarm")
        return rates

    def _bounded(self, axes: Sequence[str], truth: Truth, measure: str) -> float:
        """At most the sum of the axes' rates, which may err together or not; with the calibration's uncertainty."""
        rate = min(1.0, sum(1 - self.right(axis, truth) for axis in axes))
        portraits = [int(share["portraits"]) for axis in axes if (share := self._calibrated(axis, measure))]
        if portraits:
            rate = wilson(rate, min(portraits), _CONFIDENCE)[1]
        return min(_MOST, max(_LEAST, rate))

    def _calibrated(self, axis: str, measure: str) -> Mapping[str, Json] | None:
        groups = (self.calibration or {}).get("axes", {}).get(axis, {})
        return groups.get(_EVERYONE, {}).get(measure)


def answers_of(known: KnownPair, assessment: Assessment) -> dict[str, dict[str, Json]]:
    """By axis: the answer, the truth where it is known, and whether the answer is right."""
    truths, limits = known.truths(list(assessment.ratings)), load_limits().axes
    answers: dict[str, dict[str, Json]] = {}
    for axis, rating in assessment.ratings.items():
        match rating:
            case Rated(score=score, evidence=reason):
                answers[axis] = {"outcome": "rated", "score": score, "reason": reason}
                if axis in truths:
                    answers[axis]["right"] = limits[axis].is_right(known.kind, known.amount, score)
            case Abstained(reason=reason):
                answers[axis] = {"outcome": "abstained", "reason": reason}
            case Failed(error=reason):
                answers[axis] = {"outcome": "failed", "reason": reason}
        if axis in truths:
            answers[axis]["truth"] = truths[axis]
    return answers


def trials(answers: Mapping[str, Mapping[str, Json]], expected: Expectations) -> Iterator[Trial]:
    """What an answer adds to the charts; axes without a score add nothing."""
    known: dict[str, Truth] = {axis: answer["truth"] for axis, answer in answers.items() if "right" in answer}
    for chart, rate in expected.acceptable(known).items():
        wanted: Truth = "changed" if chart == "missed" else "unchanged"
        wrong = any(not answers[axis]["right"] for axis, truth in known.items() if truth == wanted)
        yield Trial(chart=chart, acceptable=rate, error=wrong)


@dataclass(slots=True)
class Charts:
    """The two charts of one judge."""

    limits: Mapping[Chart, int]
    levels: dict[Chart, int] = field(default_factory=lambda: dict.fromkeys(CHARTS, 0))

    @classmethod
    def planned(cls, pairs: Iterable[KnownPair], axes: Sequence[str], expected: Expectations) -> Charts:
        """With limits such that both together raise a false alarm within these pairs in 1 % of runs at most."""
        rates: dict[Chart, list[float]] = {chart: [] for chart in CHARTS}
        for pair in pairs:
            for chart, rate in expected.acceptable(pair.truths(axes)).items():
                rates[chart].append(rate)
        return cls({chart: cusum.limit_for(rates[chart], FALSE_ALARMS / len(CHARTS)) for chart in CHARTS})

    def add(self, trial: Trial) -> None:
        """One more answer."""
        self.levels[trial.chart] = cusum.moved(self.levels[trial.chart], trial.acceptable, error=trial.error)

    @property
    def alarms(self) -> list[Chart]:
        """The charts that have reached their limit."""
        return [chart for chart in CHARTS if self.levels[chart] >= self.limits[chart]]

    def as_json(self) -> dict[str, tuple[int, int]]:
        """Level and limit of each."""
        return {chart: (self.levels[chart], self.limits[chart]) for chart in CHARTS}
