"""Try the instruments on honest and guilty editors: who is silent, who accuses, and who is found out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stillme.audit.building import build
from stillme.core import rubric
from stillme.core.errors import Interrupted
from stillme.core.rubric import axis_of, rate_of
from stillme.core.types import Estimate, Interval, Portrait, Settings
from stillme.estimates import estimate
from stillme.estimates.estimating import Disparity
from stillme.estimates.headlines import Finding, Standing, find_gaps, smallest_effect, word_for
from stillme.estimates.quantities import meets
from stillme.estimates.rows import Edits, RatingState, Scores
from stillme.findings.calibration.honest import HonestEdit
from stillme.findings.calibration.records import standing_of
from stillme.runs import RecordedRun
from stillme.work.options import RunOptions
from stillme.work.stages import work
from stillme.work.tally import Ended
from tests.calibration.guilty import GuiltyEdit, editor_of, load

INSTRUCTION = "Apply the usual filter."
LARGER = "larger than matters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What one quantity said of one edit, by one factor."""

    edit: HonestEdit
    quantity: str
    factor: str
    word: str
    """Empty where the quantity decides nothing."""
    differs: bool
    """Whether it would read "differs", or more, before Holm."""
    gap: float
    breaks_limit: bool
    """Whether a gate's rule `QUANTITY.disparity <= SMALLEST EFFECT` would fail."""
    answered: float
    """The share of edits with an answer."""
    rate_breaks: bool
    """For a rate: whether a gate's rule `QUANTITY <= 5%` would fail."""


def run_jury(folder: Path, edits: Sequence[HonestEdit], portraits: Sequence[Portrait]) -> RecordedRun:
    """Make and measure the edits as an audit, one editor for each edit, so that it resumes like one."""
    audit = build(
        editors={edit.name: editor_of(edit, portraits) for edit in edits},
        # Every portrait is read once, not once for each editor.
        judges=[{"use": "instruments", "parameters": {"cache": len(portraits)}}],
        portraits=portraits,
        prompts=[INSTRUCTION],
        factors=load().factors,
        folder=folder,
        title="Honest and guilty editors",
    )
    if work(audit, ("edit", "judge"), RunOptions()).ended is not Ended.COMPLETE:
        raise Interrupted("The trials were interrupted; run the same command to continue.")
    return RecordedRun.open(folder)


def try_edits(run: RecordedRun, edits: Sequence[HonestEdit]) -> Iterator[Trial]:
    """Every trial of these edits. Each edit is an audit of its own: one editor is never corrected for another."""
    asked = tuple(name for names in load().subjects.values() for name in names)
    standing = standing_of(run)
    for edit in edits:
        rows, scores = _of_editor(run, edit.name, asked)
        yield from _trials(edit, rows, scores, asked, standing, run.settings)


def _of_editor(run: RecordedRun, editor: str, quantities: Sequence[str]) -> tuple[Edits, list[Scores]]:
    results = run.results
    own = results.edits.editor == results.edits.editors.index(editor)
    axes = {axis_of(name) for name in quantities}
    return results.edits.where(own), [score.where(own) for score in results.scores if score.axis in axes]


def _trials(
    edit: HonestEdit,
    rows: Edits,
    scores: Sequence[Scores],
    quantities: Sequence[str],
    standing: Standing,
    settings: Settings,
) -> Iterator[Trial]:
    estimates = estimate(rows, scores, settings)
    everyone = {row.quantity: row for row in estimates if row.scope == "all"}
    gaps = {(row.quantity, row.factor): row for row in estimates if isinstance(row, Disparity)}
    findings = {(found.quantity, found.factor): found for found in find_gaps(estimates, standing, settings)}
    for quantity in quantities:
        for factor in settings.factors:
            gap, all_of_them = gaps.get((quantity, factor)), everyone.get(quantity)
            if gap is not None and all_of_them is not None:
                yield _trial(edit, gap, all_of_them, findings.get((quantity, factor)), settings)


def _trial(edit: HonestEdit, gap: Disparity, everyone: Estimate, finding: Finding | None, settings: Settings) -> Trial:
    smallest = smallest_effect(gap.quantity, settings.smallest_effects)
    known = gap.outcome if isinstance(gap.outcome, Interval) else None
    decides = finding is not None and finding.word is not None
    rate = everyone.outcome if rate_of(gap.quantity) and isinstance(everyone.outcome, Interval) else None
    return Trial(
        edit=edit,
        quantity=gap.quantity,
        factor=gap.factor,
        word=(finding.word or "") if finding else "",
        differs=decides and _word(gap, smallest, settings) in ("differs, size unclear", LARGER),
        gap=known.value if known else math.nan,
        breaks_limit=decides and known is not None and smallest is not None and known.low > smallest,
        answered=everyone.edits / max(1, everyone.edits + sum(everyone.excluded.values())),
        rate_breaks=rate is not None and decides and rate.low > load().limits.false_rate,
    )


def _word(gap: Disparity, smallest: float | None, settings: Settings) -> str | None:
    p = gap.null.omnibus if gap.null else None
    return word_for(gap.outcome, p=p, smallest=smallest, units=gap.units, level=1 - settings.confidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What the jury says of one quantity."""

    quantity: str
    trials: int
    differs: int
    """Trials that read "differs" before Holm."""
    allowed: int
    accusations: tuple[Trial, ...]
    """Innocent trials that read "larger than matters", or that a gate would fail."""
    found: Mapping[str, float]
    """For guilty edits: by silent kind of which half of the edits or more were answered, the share of its editors that
    were found. Answers of which the groups got too unequal shares find no one."""
    unanswered: tuple[str, ...]
    """Silent kinds of which fewer than half of the edits were answered."""

    @property
    def missed(self) -> tuple[str, ...]:
        """The answered kinds in which the guilty are not found."""
        return tuple(kind for kind, share in self.found.items() if share < load().limits.answered)

    @property
    def problems(self) -> list[str]:
        """Why it does not pass; empty if it does."""
        return [*self.wrongs, *self.misses]

    @property
    def wrongs(self) -> list[str]:
        """What it says of the innocent that it must not."""
        wrongs: list[str] = []
        if self.accusations:
            names = ", ".join(dict.fromkeys(f"{trial.edit.name} by {trial.factor}" for trial in self.accusations))
            wrongs.append(f"{self.quantity} accuses the innocent: {names}")
        if self.differs > self.allowed:
            allowed = f"{self.allowed} of {self.trials} allowed"
            wrongs.append(f"{self.quantity} differs in {self.differs} innocent trials; {allowed}")
        return wrongs

    @property
    def misses(self) -> list[str]:
        """What it does not say of the guilty that it must."""
        limits, kinds = load().limits, len(self.found) + len(self.unanswered)
        misses: list[str] = []
        found = len(self.found) - len(self.missed)
        if kinds and (found < limits.found * len(self.found) or not self.found):
            missed = ", ".join(self.missed)
            misses.append(f"{self.quantity} finds the guilty in {found} of {len(self.found)} kinds; missed: {missed}")
        if len(self.unanswered) > limits.unanswered * kinds:
            misses.append(
                f"{self.quantity} leaves {len(self.unanswered)} of {kinds} kinds unanswered: {self.unanswered}"
            )
        return misses


def rule(trials: Sequence[Trial]) -> tuple[Ruling, ...]:
    """One ruling for each quantity, over its honest and guilty trials."""
    return tuple(_ruling(quantity, trials) for quantity in dict.fromkeys(trial.quantity for trial in trials))


def _ruling(quantity: str, trials: Sequence[Trial]) -> Ruling:
    jury = load()
    own = [trial for trial in trials if trial.quantity == quantity]
    silent = [
        trial for trial in own if not isinstance(trial.edit, GuiltyEdit) and quantity in jury.silent(trial.edit.kind)
    ]
    guilty = [
        trial
        for trial in own
        if isinstance(trial.edit, GuiltyEdit) and jury.guilty[trial.edit.guilt].quantity == quantity
    ]
    found: dict[str, float] = {}
    unanswered: list[str] = []
    for kind in dict.fromkeys(trial.edit.kind for trial in guilty):
        by_preset = [trial for trial in guilty if trial.edit.kind == kind and trial.factor == "preset"]
        if np.mean([trial.answered for trial in by_preset]) < jury.limits.answered:
            unanswered.append(kind)
        else:
            found[kind] = float(np.mean([trial.word == LARGER for trial in by_preset]))
    return Ruling(
        quantity=quantity,
        trials=len(silent),
        differs=sum(trial.differs for trial in silent),
        allowed=math.ceil(jury.limits.differs * len(silent)),
        accusations=tuple(trial for trial in silent if trial.word == LARGER or trial.breaks_limit or trial.rate_breaks),
        found=found,
        unanswered=tuple(unanswered),
    )


def wrong_about_visibility(run: RecordedRun, edits: Sequence[HonestEdit]) -> dict[str, float]:
    """For each edit whose visibility is known: the share of portraits that "no visible change" is wrong about."""
    (score,) = [score for score in run.results.scores if score.axis == axis_of("unchanged")]
    unchanged = rubric.load().rates["unchanged"]
    rows = run.results.edits
    wrong: dict[str, float] = {}
    for edit in edits:
        visible = load().kinds[edit.kind].visible
        own = (rows.editor == rows.editors.index(edit.name)) & (score.state == RatingState.RATED)
        if visible is not None and not isinstance(edit, GuiltyEdit) and own.any():
            said = meets(unchanged, score.value[own])
            wrong[edit.name] = int(np.count_nonzero(said == float(visible))) / len(said)
    return wrong
