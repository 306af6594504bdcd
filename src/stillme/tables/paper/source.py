"""The rows that tables are made from, and whose scores they show."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from stillme import rubric
from stillme.estimates import Edits, EditState, RatingState, Scores, Settings, estimate, headline, mark
from stillme.estimates.rows import Flags
from stillme.estimates.standing import Standing
from stillme.tables.paper.table import MARK, Absent, Cell, Form, number
from stillme.types import Arm, Estimate

BASELINE = str(Arm.BASELINE)
FEATURE = str(Arm.FEATURE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An audit's results, with what the tables are about."""

    edits: Edits
    scores: tuple[Scores, ...]
    settings: Settings
    factor: str
    """The attribute that stands where the paper has race."""
    factors: tuple[str, ...]
    """All that group the portraits."""
    people: frozenset[str]
    """Judges who are people."""
    judge: str = ""
    """The judge that the user wants; empty for the ensemble, else the first that answers."""
    primary: str = ""
    """The ensemble's judge that decides where two are more than a point apart; empty under other rules."""
    standing: Standing = field(default_factory=dict[str, Mapping[str, str]])
    """Which judges passed calibration, by axis."""

    def score(self, axis: str) -> Scores | None:
        """Whose scores on this axis count: models and instruments, not people, unless they are asked for."""
        offered = [score for score in self.scores if score.axis == axis]
        if self.judge:
            return next((score for score in offered if score.judge == self.judge), None)
        return next((score for score in headline(offered) if score.kind != "person"), None)

    def credit(self, axes: Collection[str]) -> tuple[str, ...]:
        """Whose scores a table shows, and what calibration says of them."""
        scores = [score for axis in axes if (score := self.score(axis))]
        titles: dict[tuple[str, str], list[str]] = {}
        for score in scores:
            if note := self.note(score.axis):
                titles.setdefault((score.judge, note), []).append(axis_title(score.axis))
        names = dict.fromkeys(score.judge for score in scores)
        decides = self.primary and any(score.kind == "ensemble" for score in scores)
        return (
            *((f"Scores by {', '.join(names)}.",) if names else ()),
            *((f"Where its judges are more than a point apart, {self.primary} decides (Eq. 3).",) if decides else ()),
            *(f"{MARK} {judge}: {note} ({', '.join(axes)})." for (judge, note), axes in titles.items()),
        )

    def note(self, axis: str) -> str:
        """What calibration says of the scores on this axis; empty where the judge passed. People need none."""
        score = self.score(axis)
        return mark(self.standing, score.judge, axis) if score and score.kind != "person" else ""

    def by_people(self, axis: str) -> Sequence[Scores]:
        """Every person's scores on this axis."""
        return [score for score in self.scores if score.axis == axis and score.judge in self.people]

    def unanswered(self, axis: str) -> str:
        """Why there is no score on an axis."""
        title = rubric.load().title(axis)
        return f"{self.judge} does not rate {title}" if self.judge else f"no judge of this audit rates {title}"

    def has(self, arm: str) -> bool:
        """Whether the audit has edits of this arm."""
        return arm in self.edits.arms

    def where(self, rows: Flags) -> Source:
        """Only these rows."""
        return replace(self, edits=self.edits.where(rows), scores=tuple(score.where(rows) for score in self.scores))

    def in_arm(self, arm: str) -> Source:
        """Only the rows of one arm."""
        return self.where(self.edits.arm == self.edits.arms.index(arm))

    def estimates(self, axes: Collection[str], *, by_group: bool) -> list[Estimate]:
        """Means and rates of the chosen judge on these axes; with `by_group`, also of every group and between them."""
        scores = [score for axis in axes if (score := self.score(axis))]
        factors = (self.factor,) if by_group else ()
        reference = {name: level for name, level in self.settings.reference.items() if name in factors}
        return estimate(self.edits, scores, replace(self.settings, factors=factors, reference=reference))

    def cell(self, estimates: Sequence[Estimate], axis: str, form: Form, wanted: Callable[[Estimate], bool]) -> Cell:
        """The cell of the one estimate that is wanted."""
        if self.score(axis) is None:
            return Absent(reason=self.unanswered(axis))
        for candidate in estimates:
            if candidate.judge and wanted(candidate):
                return number(candidate.outcome, form, candidate.portraits, candidate.edits, self.note(axis))
        return Absent(reason="there is no edit to rate")


def rated(score: Scores, edits: Edits) -> Flags:
    """Rows with a score."""
    return (score.state == RatingState.RATED) & (edits.state == EditState.EDITED)


def editors_of(edits: Edits) -> tuple[str, ...]:
    """The editors that have rows, in the audit's order."""
    present = set(np.unique(edits.editor).tolist())
    return tuple(name for place, name in enumerate(edits.editors) if place in present)


def axis_title(axis: str) -> str:
    """An axis in the paper's words."""
    return rubric.load().title(axis)
