"""What a run's control pairs say about a judge: right answers by axis and skin tone, and the alarm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stillme.audit.design import JudgeRecord
from stillme.core.rubric.limits import Truth
from stillme.core.rubric.limits import load as load_limits
from stillme.core.types import Interval, Json, NotEstimable
from stillme.estimates import numbers
from stillme.estimates.intervals import wilson
from stillme.runs.control_pairs.scoring import Expectations
from stillme.runs.store import Store, StoredControlPair

_CONFIDENCE = 0.95
_EVERYONE = "everyone"
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
