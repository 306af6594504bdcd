"""What a run's control pairs say about a judge: right answers by axis and skin tone, and the alarm.

There is one chart for changes missed, one for false alarms. The errors that are acceptable come from the judge's
calibration, at the upper end of its interval, because it rests on few portraits itself. Without one they are the limits
that a calibration asks for.

A chart notices while answers come in that errors have become more frequent: a Bernoulli CUSUM with an exact limit. Each
answer has the largest error rate that is still acceptable for it. An error moves the chart up, a right answer down and
never below zero; the steps are log-likelihood ratios against four times the odds of an error. The limit is computed
from the chart's Markov chain, so that the probability of a false alarm within a planned number of answers is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from stillme.audit.design import JudgeRecord
from stillme.core.rubric import Truth, load_limits
from stillme.core.types import Abstained, Assessment, Failed, Interval, Json, NotEstimable, Rated
from stillme.estimates import numbers
from stillme.estimates.intervals import wilson
from stillme.runs.store import Store, StoredControlPair

if TYPE_CHECKING:
    from stillme.runs.control_pairs.asking import KnownPair  # makes pictures: readers of answers need none

Chart = Literal["missed", "false_alarms"]
CHARTS: tuple[Chart, ...] = ("missed", "false_alarms")
FALSE_ALARMS = 0.01
"""How often a judge that is as good as its calibration raises an alarm in a whole run; both charts share it."""
_CONFIDENCE = 0.95
_EVERYONE = "everyone"
_LEAST, _MOST = 0.01, 0.9
"""Acceptable error rates are kept between these: a judge without a single error in calibration may still make one."""


@dataclass(frozen=True, slots=True)
class Expectations:
    """What a judge's calibration, or its absence, lets one expect."""

    calibration: Mapping[str, Json] | None = None

    def right(self, axis: str, truth: Truth) -> float:
        """The share of right answers: as calibrated, else the least that calibration asks for."""
        limits, share = load_limits().axes[axis], self._calibrated(axis, truth)
        if truth == "changed":
            return float(share["value"]) if share else limits.sensitivity
        return 1 - (float(share["value"]) if share else limits.false_alarm)

    def knows(self, axis: str, truth: Truth) -> bool:
        """Whether calibration tells."""
        return self._calibrated(axis, truth) is not None

    def acceptable(self, truths: Mapping[str, Truth]) -> dict[Chart, float]:
        """The largest error rate that is no reason for an alarm, by chart."""
        changed = [axis for axis, truth in truths.items() if truth == "changed"]
        same = [axis for axis, truth in truths.items() if truth == "unchanged"]
        rates: dict[Chart, float] = {}
        if changed:
            # Several axes may be asked to notice one change: missing it on any of them is an error.
            rates["missed"] = self._bounded(changed, "changed")
        if same:
            rates["false_alarms"] = self._bounded(same, "unchanged")
        return rates

    def _bounded(self, axes: Sequence[str], truth: Truth) -> float:
        """At most the sum of the axes' rates, which may err together or not; with the calibration's uncertainty."""
        rate = min(1.0, sum(1 - self.right(axis, truth) for axis in axes))
        portraits = [int(share["portraits"]) for axis in axes if (share := self._calibrated(axis, truth))]
        if portraits:
            rate = wilson(rate, min(portraits), _CONFIDENCE)[1]
        return min(_MOST, max(_LEAST, rate))

    def _calibrated(self, axis: str, truth: Truth) -> Mapping[str, Json] | None:
        groups = (self.calibration or {}).get("axes", {}).get(axis, {})
        return groups.get(_EVERYONE, {}).get("sensitivity" if truth == "changed" else "false_alarm")


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
        return cls({chart: limit_for(rates[chart], FALSE_ALARMS / len(CHARTS)) for chart in CHARTS})

    def take(self, answers: Mapping[str, Mapping[str, Json]], expected: Expectations) -> None:
        """One more pair, by axis; axes without a score add nothing."""
        known: dict[str, Truth] = {axis: answer["truth"] for axis, answer in answers.items() if "right" in answer}
        for chart, rate in expected.acceptable(known).items():
            wanted: Truth = "changed" if chart == "missed" else "unchanged"
            self.add(chart, rate, error=any(not answers[axis]["right"] for axis in known if known[axis] == wanted))

    def add(self, chart: Chart, acceptable: float, *, error: bool) -> None:
        """One thing that an answer got right or wrong; `acceptable` is the error rate that is."""
        self.levels[chart] = moved(self.levels[chart], acceptable, error=error)

    @property
    def alarms(self) -> list[Chart]:
        """The charts that have reached their limit."""
        return [chart for chart in CHARTS if self.levels[chart] >= self.limits[chart]]

    def as_json(self) -> dict[str, tuple[int, int]]:
        """Level and limit of each."""
        return {chart: (self.levels[chart], self.limits[chart]) for chart in CHARTS}


ODDS = 4.0
"""The chart is quickest for errors whose odds have grown by this factor."""
_UNIT = 0.05
"""Steps are whole multiples of this log-likelihood ratio, so that the chart has few states."""


def step(acceptable: float, *, error: bool) -> int:
    """How far one answer moves the chart, where this error rate is acceptable."""
    suspected = ODDS * acceptable / (1 - acceptable + ODDS * acceptable)
    if error:
        return max(1, round(math.log(suspected / acceptable) / _UNIT))
    return min(-1, round(math.log((1 - suspected) / (1 - acceptable)) / _UNIT))


def moved(level: int, acceptable: float, *, error: bool) -> int:
    """The chart after one more answer."""
    return max(0, level + step(acceptable, error=error))


def alarm_probability(acceptable: Sequence[float], limit: int, errors: Sequence[float] | None = None) -> float:
    """The probability that the chart reaches the limit within these answers.

    `errors` are the true error rates; by default they are just acceptable.
    """
    levels = np.zeros(limit)
    levels[0] = 1.0
    alarmed = 0.0
    for rate, error in zip(acceptable, acceptable if errors is None else errors, strict=True):
        up, down = min(step(rate, error=True), limit), min(-step(rate, error=False), limit)
        after = np.zeros(limit)
        after[: limit - down] = (1 - error) * levels[down:]
        after[0] += (1 - error) * levels[:down].sum()
        after[up:] += error * levels[: limit - up]
        alarmed += error * float(levels[limit - up :].sum())
        levels = after
    return alarmed


def limit_for(acceptable: Sequence[float], false_alarms: float) -> int:
    """The lowest limit that these answers, with just acceptable errors, reach with at most this probability."""
    high = 64
    while alarm_probability(acceptable, high) > false_alarms:
        high *= 2
    low = 1
    while low < high:
        middle = (low + high) // 2
        if alarm_probability(acceptable, middle) <= false_alarms:
            high = middle
        else:
            low = middle + 1
    return low


_TONES = (_EVERYONE, *load_limits().groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class RightAnswers:
    """How often a judge was right on one axis, for everyone or for one skin tone."""

    judge: str
    axis: str
    truth: Truth
    """Whether something had changed on this axis."""
    tone: str
    right: int
    answers: int
    abstained: int
    outcome: Interval | NotEstimable
    """The share of right answers; its interval as if each portrait had given one."""
    expected: float
    """By the judge's calibration, else the least that calibration asks for."""
    calibrated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RightCount:
    """Right answers of one kind, on all axes."""

    right: int = 0
    answers: int = 0
    expected: float = 0.0
    calibrated: bool = False

    @property
    def wrong(self) -> RightCount:
        """The others, as if they were what is counted."""
        return replace(self, right=self.answers - self.right, expected=self.answers - self.expected)

    def as_json(self) -> dict[str, Json]:
        """For `--json`."""
        return {"right": self.right, "answers": self.answers, "expected": round(self.expected, 3)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPairAnswers:
    """One judge's answers to hidden pairs of known truth."""

    judge: str
    planned: int
    answered: int
    changes: RightCount
    """Changes that were noticed."""
    unchanged: RightCount
    """Axes that were left alone, where nothing had changed."""
    by_axis: tuple[RightAnswers, ...]
    alarm: str
    """What is wrong, in a sentence; empty where nothing is."""
    cost: float | None
    """Dollars; None if a price is unknown."""
    wrong_pairs: str
    """As in `11 of 16`: the pairs with a wrong answer, of those with an answer."""

    def __str__(self) -> str:
        changes, false = self.changes, self.unchanged.wrong
        parts: list[str] = []
        if changes.answers:
            parts.append(f"noticed {changes.right:,} of {changes.answers:,} hidden changes ({_compared(changes)})")
        if false.answers:
            parts.append(f"saw {false.right:,} changes in {false.answers:,} places without one ({_compared(false)})")
        return f"In this run {self.judge} {' and '.join(parts)}."

    def lines(self) -> Iterator[str]:
        """For people: the sentence, and the alarm if there is one."""
        yield f"  {self}"
        if self.alarm:
            yield f"  warning: {self.alarm}"

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "judge": self.judge,
            "planned": self.planned,
            "answered": self.answered,
            "changes": self.changes,
            "unchanged": self.unchanged,
            "alarm": self.alarm,
            "cost": self.cost,
            "by_axis": [
                {name: getattr(row, name) for name in ("axis", "truth", "tone", "right", "answers", "expected")}
                for row in self.by_axis
            ],
        }


def _compared(counted: RightCount) -> str:
    expected = numbers.decimal(counted.expected, 0 if counted.expected >= 10 else 1)
    source = "expected from its calibration" if counted.calibrated else "by the limits; it was never calibrated"
    return f"{expected} {source}"


def control_pair_answers(
    store: Store, name: str, judge: str, calibration: Mapping[str, Json] | None, planned: int
) -> ControlPairAnswers:
    """What the ledger says about a judge; `judge` is the key of its specification."""
    rows = store.control_pairs(judge)
    expected = Expectations(calibration)
    by_axis = tuple(_by_axis(name, rows, expected))
    costs = [row.cost for row in rows]
    return ControlPairAnswers(
        judge=name,
        planned=planned,
        answered=len(rows),
        changes=_counted(by_axis, "changed"),
        unchanged=_counted(by_axis, "unchanged"),
        by_axis=by_axis,
        alarm=_alarm(name, rows, expected),
        cost=None if None in costs else sum(cost for cost in costs if cost is not None),
        wrong_pairs=_wrong_pairs(rows),
    )


def _wrong_pairs(rows: Sequence[StoredControlPair]) -> str:
    """A pair is wrong if any answer to it is."""
    answered = [[bool(answer["right"]) for answer in row.answers.values() if "right" in answer] for row in rows]
    answered = [answers for answers in answered if answers]
    return f"{sum(not all(answers) for answers in answered):,} of {len(answered):,}"


def answered_by(store: Store, judges: Sequence[JudgeRecord]) -> Iterator[ControlPairAnswers]:
    """What is known of each judge that has answered a hidden pair."""
    for judge in judges:
        answers = control_pair_answers(store, judge.name, judge.spec.key, judge.calibration, judge.control_pairs)
        if answers.answered:
            yield answers


def _alarm(name: str, rows: Sequence[StoredControlPair], expected: Expectations) -> str:
    first = next((place for place, row in enumerate(rows) if row.alarms), None)
    if first is None:
        return ""
    by_axis = tuple(_by_axis(name, rows[: first + 1], expected))
    missed, false = _counted(by_axis, "changed").wrong, _counted(by_axis, "unchanged").wrong
    parts: list[str] = []
    if "missed" in rows[first].alarms:
        expectation = f"({numbers.decimal(missed.expected, 1)} expected)"
        parts.append(f"missed {missed.right:,} of {missed.answers:,} hidden changes {expectation}")
    if "false_alarms" in rows[first].alarms:
        expectation = f"({numbers.decimal(false.expected, 1)} expected)"
        parts.append(f"saw {false.right:,} changes in {false.answers:,} places without one {expectation}")
    standard = "its calibration explains" if expected.calibration else "the limits of calibration allow"
    return (
        f"{name} is failing its control pairs ({_wrong_pairs(rows)} wrong). Do not rely on its scores. By real answer "
        f"{rows[first].answered_before:,} it {' and '.join(parts)}, more than {standard}."
    )


def _by_axis(name: str, rows: Sequence[StoredControlPair], expected: Expectations) -> Iterator[RightAnswers]:
    cells: dict[tuple[str, Truth, str], list[tuple[str, Mapping[str, Json]]]] = {}
    for row in rows:
        for axis, answer in row.answers.items():
            if "truth" in answer:
                for tone in (_EVERYONE, row.tone):
                    cells.setdefault((axis, answer["truth"], tone), []).append((row.subject, answer))
    for axis, truth, tone in sorted(cells, key=lambda cell: (*cell[:2], _TONES.index(cell[2]))):
        answers = cells[axis, truth, tone]
        given = [(subject, bool(answer["right"])) for subject, answer in answers if "right" in answer]
        right = sum(is_right for _, is_right in given)
        yield RightAnswers(
            judge=name,
            axis=axis,
            truth=truth,
            tone=tone,
            right=right,
            answers=len(given),
            abstained=len(answers) - len(given),
            outcome=_share(right, len(given), len({subject for subject, _ in given})),
            expected=expected.right(axis, truth),
            calibrated=expected.knows(axis, truth),
        )


def _share(right: int, answers: int, portraits: int) -> Interval | NotEstimable:
    if not answers:
        return NotEstimable(reason="no answer has a score")
    low, high = wilson(right / answers, portraits, _CONFIDENCE)
    return Interval(value=right / answers, low=low, high=high, confidence=_CONFIDENCE, method="Wilson by portrait")


def _counted(by_axis: Sequence[RightAnswers], truth: Truth) -> RightCount:
    rows = [row for row in by_axis if row.truth == truth and row.tone == _EVERYONE]
    return RightCount(
        right=sum(row.right for row in rows),
        answers=sum(row.answers for row in rows),
        expected=sum(row.expected * row.answers for row in rows),
        calibrated=bool(rows) and all(row.calibrated for row in rows),
    )
