"""The rows that tables are made from, and whose scores they show; single edits that show a failure (Tables 24, 25)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from stillme.core import rubric
from stillme.core.rubric import Rate, rate_of
from stillme.core.types import Arm, Estimate
from stillme.estimates import Edits, EditState, RatingState, Scores, Settings, at_every_cut, estimate, mark, one_judge
from stillme.estimates.headlines import Standing
from stillme.estimates.rows import Flags
from stillme.findings.tables.paper.table import MARK, Absent, Cell, Form, PaperTable, TableRow, Words, number

BASELINE = str(Arm.BASELINE)
FEATURE = str(Arm.FEATURE)
_RACE = "race_changed"


Remarks = Callable[[Collection[str]], Mapping[str, Mapping[str, str]]]
"""From keys of edits to what judges gave as evidence, by axis."""


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
    race_cut: int | None = None
    """From which score on a race counts as changed; None for the rubric's `race_changed`."""
    standing: Standing = field(default_factory=dict[str, Mapping[str, str]])
    """Which judges passed calibration, by axis."""
    remarks: Remarks = lambda _: {}
    """What judges say of single edits."""

    def score(self, axis: str) -> Scores | None:
        """Whose scores on this axis count: models and instruments, not people, unless they are asked for."""
        return one_judge(self.scores, axis, self.judge)

    def credit(self, axes: Collection[str]) -> tuple[str, ...]:
        """Whose scores a table shows, and what calibration says of them."""
        scores = [score for axis in axes if (score := self.score(axis))]
        titles: dict[tuple[str, str], list[str]] = {}
        for score in scores:
            if note := self.note(score.axis):
                titles.setdefault((score.judge, note), []).append(axis_title(score.axis))
        names = dict.fromkeys(score.judge for score in scores)
        scales = {name for name, axis in rubric.load().axes.items() if axis.is_scale}
        decides = self.primary and any(score.kind == "ensemble" and score.axis in scales for score in scores)
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
        if self.judge:
            return f"{self.judge} does not rate {title}"
        if raters := self.by_people(axis):
            return f"only human raters score {title}; `--judge {raters[0].judge}` shows their scores"
        return f"no judge of this audit rates {title}"

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
        return estimate(self.edits, scores, self._settings(by_group=by_group))

    def _settings(self, *, by_group: bool) -> Settings:
        factors = (self.factor,) if by_group else ()
        reference = {name: level for name, level in self.settings.reference.items() if name in factors}
        return self.settings.comparing(*factors, reference=reference)

    @property
    def race_rate(self) -> Rate:
        """What counts as a changed race."""
        return rate_of(f"race_change>={self.race_cut}" if self.race_cut else _RACE) or rubric.load().rates[_RACE]

    def race_estimates(self, *, by_group: bool) -> list[Estimate]:
        """The rate of changed races at the audit's cut."""
        score, rate = self.score(self.race_rate.axis), self.race_rate
        if score is None or self.race_cut is None:
            rates = self.estimates((rate.axis,), by_group=by_group)
        else:
            rates = at_every_cut(self.edits, [score], self._settings(by_group=by_group))
        return [estimate for estimate in rates if estimate.quantity == rate.name]

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


CASES = 6
"""Edits that a table shows; the paper shows three."""

_HEAD = ("Prompt", "Source", "Model", "Score", "Observation")
_SELECTION = (
    "The worst edits, each of another prompt and group where possible: examples, not a sample. "
    "Observations are the judge's own words."
)
_CHANGES = ("race_change", "skin_tone", "gender_change")


def table_24(source: Source) -> PaperTable:
    """Edits that were ignored, the lowest edit success first."""
    part = source.in_arm(BASELINE)
    severity = np.zeros(len(part.edits))
    axis = np.full(len(part.edits), "edit_success")
    if score := part.score("edit_success"):
        ignored = rated(score, part.edits) & (score.value <= (rubric.load().rates["soft_erasure"].at_most or 0))
        severity[ignored] = 5 - score.value[ignored]
    return _table(
        part,
        24,
        "Edits that were ignored or hardly made (Edit Success of 2 or less).",
        severity,
        axis,
        _unrated(part, ("edit_success",)),
    )


def table_25(source: Source) -> PaperTable:
    """Edits that were made and changed the person, the largest change first."""
    part = source.in_arm(BASELINE)
    severity = np.zeros(len(part.edits))
    axis = np.full(len(part.edits), _CHANGES[0], dtype="<U16")
    made = _made(part)
    for name in _CHANGES:
        if score := part.score(name):
            known = rubric.load().axes[name]
            middle = known.unchanged or 0.0
            here = made & rated(score, part.edits)
            # From 0 for the same person to 1 at the end of the scale; 0.5 and more is seen by everyone.
            away = np.zeros(len(part.edits))
            away[here] = np.abs(score.value[here] - middle) / max(5 - middle, middle - 1)
            worse = (away >= 0.5) & (away > severity)
            severity[worse], axis[worse] = away[worse], name
    caption = "Edits that were made and changed race, skin tone or gender presentation (half the scale or more)."
    return _table(part, 25, caption, severity, axis, _unrated(part, _CHANGES))


def _made(part: Source) -> Flags:
    """Edits that succeeded; without a judge who tells, all."""
    score = part.score("edit_success")
    if score is None:
        return np.ones(len(part.edits), dtype=np.bool_)
    return rated(score, part.edits) & (score.value >= (rubric.load().rates["success"].at_least or 0))


def _table(
    part: Source, number: int, caption: str, severity: NDArray[np.float64], axis: NDArray[np.str_], absent: str
) -> PaperTable:
    rows = list(_chosen(part, severity))
    axes = [str(name) for name in axis[rows]] if rows else []
    said = part.remarks([part.edits.keys[row] for row in rows])
    return PaperTable(
        number=number,
        caption=caption,
        head=_HEAD,
        rows=tuple(_row(part, row, name, said) for row, name in zip(rows, axes, strict=True)),
        notes=(*part.credit(dict.fromkeys(axes)), _SELECTION) if rows else (),
        absent="" if rows else absent or "no rated edit of the baseline arm shows it",
    )


def _unrated(part: Source, axes: Sequence[str]) -> str:
    """Why there is nothing to choose from; empty where a judge answers."""
    return "" if any(part.score(axis) for axis in axes) else part.unanswered(axes[0])


def _chosen(part: Source, severity: NDArray[np.float64]) -> Iterator[int]:
    """The worst rows; a prompt or group that is shown already comes after those that are not."""
    edits = part.edits
    levels = edits.levels(part.factor)[1] if part.factor else np.zeros(len(edits.portraits), dtype=np.int32)
    waiting = sorted(
        np.flatnonzero(severity > 0).tolist(), key=lambda row: (-round(float(severity[row]), 9), edits.keys[row])
    )
    prompts: set[int] = set()
    groups: set[int] = set()
    for _ in range(min(CASES, len(waiting))):
        row = min(
            waiting,
            key=lambda row: (int(edits.prompt[row]) in prompts) + (int(levels[edits.portrait[row]]) in groups),
        )
        waiting.remove(row)
        prompts.add(int(edits.prompt[row]))
        groups.add(int(levels[edits.portrait[row]]))
        yield row


def _row(part: Source, row: int, axis: str, said: Mapping[str, Mapping[str, str]]) -> TableRow:
    edits, score = part.edits, part.score(axis)
    assert score is not None
    portrait = edits.portraits[int(edits.portrait[row])]
    labels = " ".join(portrait.attributes[name] for name in part.factors if portrait.attributes.get(name))
    return TableRow(
        label=edits.prompts[int(edits.prompt[row])].id,
        cells=(
            Words(text=labels or portrait.id),
            Words(text=edits.editors[int(edits.editor[row])]),
            Words(text=f"{axis_title(axis)}: {score.value[row]:g}/5"),
            Words(text=said.get(edits.keys[row], {}).get(axis, "")),
        ),
    )
