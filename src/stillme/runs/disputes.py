"""How far the judges of an audit agree, and which edits people should look at."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stillme.core import rubric
from stillme.core.files import write_csv
from stillme.core.types import Interval
from stillme.estimates import Scores, numbers
from stillme.estimates.agreement import Agreement, agreement
from stillme.estimates.people import disagreement
from stillme.judges.ensemble import PRIORITIES, Flag, agreed, flag
from stillme.runs.gathering import Results
from stillme.runs.run import RecordedRun

FOLDER = "judges"
_FLAGGED = ("priority", "portrait", "prompt", "editor", "arm", "axis", "judge", "score", "edit")
_AGREEMENT = (
    *("axis", "measure", "factor", "group", "value", "low", "high", "not_estimable"),
    *("judges", "edits", "ratings", "portraits"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispute:
    """One edit on which judges are too far apart."""

    row: int
    """Index into the results."""
    flag: Flag


def between(run: RecordedRun) -> list[Dispute]:
    """Edits that people should look at, the most urgent first."""
    differences = dict(_differences(raters(run)))
    disputes: list[Dispute] = []
    for row in range(len(run.results.edits)):
        raised = flag({axis: float(difference[row]) for axis, difference in differences.items()})
        if raised:
            disputes.append(Dispute(row=row, flag=raised))
    return sorted(disputes, key=_urgency)


def _urgency(dispute: Dispute) -> tuple[int, float]:
    return PRIORITIES.index(dispute.flag.priority), -max(dispute.flag.differences.values())


def raters(run: RecordedRun) -> list[Scores]:
    """Scores of the audit's own judges on the scales and on who is the target, without people and ensembles."""
    own = {judge.name for judge in run.judges} - run.design.people
    rated = {axis.name for axis in rubric.load().axes.values() if axis.is_asked}
    return [score for score in run.results.scores if score.judge in own and score.axis in rated]


def disagreements(run: RecordedRun) -> NDArray[np.float64]:
    """For each edit how far models' answers on the scales are apart, on average over the scales; NaN if not known."""
    nominal = rubric.load().is_nominal
    answers: dict[str, list[NDArray[np.float64]]] = {}
    repeats = {(repeat.judge, repeat.axis): repeat.value for repeat in run.results.repeats}
    for score in raters(run):
        if not nominal(score.axis):
            again = repeats.get((score.judge, score.axis))
            answers.setdefault(score.axis, []).extend([score.value] if again is None else [*again])
    apart = np.full(len(run.results.edits), np.nan)
    tables = [disagreement(given) for given in answers.values() if len(given) > 1]
    if tables:
        table = np.stack(tables)
        known = ~np.isnan(table).all(axis=0)
        apart[known] = np.nanmean(table[:, known], axis=0)
    return apart


def agreement_of(run: RecordedRun) -> list[Agreement]:
    """How far the audit's judges agree with one another, and its people among themselves."""
    edits, settings = run.results.edits, run.settings
    return [
        *agreement(edits, raters(run), settings),
        *agreement(edits, run.results.people, settings, among="people"),
    ]


def write_judges(run: RecordedRun) -> list[Path]:
    """Write judges/flagged.csv and judges/agreement.csv into tables; nothing where there is only one judge."""
    scores = raters(run)
    if len({score.judge for score in scores}) < 2:
        return []
    tables = run.folder / "tables" / FOLDER
    tables.mkdir(parents=True, exist_ok=True)
    return [
        write_csv(tables / "flagged.csv", _FLAGGED, _flagged(run.results, scores, between(run))),
        write_csv(
            tables / "agreement.csv",
            _AGREEMENT,
            map(_agreement_row, agreement(run.results.edits, scores, run.settings)),
        ),
    ]


def _differences(scores: Sequence[Scores]) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """For every axis the largest difference between two judges; 0 where fewer than two gave a score, or all agree."""
    for axis in dict.fromkeys(score.axis for score in scores):
        given = np.stack([score.value for score in scores if score.axis == axis])
        high = np.where(np.isnan(given), -np.inf, given).max(axis=0)
        low = np.where(np.isnan(given), np.inf, given).min(axis=0)
        difference = np.where(np.isfinite(high), high - low, 0.0)
        if rubric.load().is_nominal(axis):
            for row in np.flatnonzero(difference):
                difference[row] *= agreed(given[~np.isnan(given[:, row]), row].tolist()) is None
        yield axis, difference


def _flagged(results: Results, scores: Sequence[Scores], disputes: Sequence[Dispute]) -> Iterator[dict[str, str]]:
    edits = results.edits
    for dispute, score in itertools.product(disputes, scores):
        if score.axis in dispute.flag.differences and not np.isnan(score.value[dispute.row]):
            row = dispute.row
            yield {
                "priority": dispute.flag.priority,
                "portrait": edits.portraits[int(edits.portrait[row])].id,
                "prompt": edits.prompts[int(edits.prompt[row])].id,
                "editor": edits.editors[int(edits.editor[row])],
                "arm": edits.arms[int(edits.arm[row])],
                "axis": score.axis,
                "judge": score.judge,
                "score": f"{score.value[row]:.9g}",
                "edit": edits.keys[row],
            }


def _agreement_row(agreement: Agreement) -> dict[str, str]:
    row = {
        "axis": agreement.axis,
        "measure": agreement.measure,
        "factor": agreement.factor or "everyone",
        "group": agreement.group or "all",
        "judges": str(agreement.raters),
        "edits": str(agreement.items),
        "ratings": str(agreement.ratings),
        "portraits": str(agreement.portraits),
    }
    outcome = agreement.outcome
    if not isinstance(outcome, Interval):
        return row | {"not_estimable": outcome.reason}
    return row | {name: numbers.machine(getattr(outcome, name)) for name in ("value", "low", "high")}
