"""Every further analysis of a run, each as a table.

What the paper tests, what it should have tested, and how far a finding depends on choices.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Protocol

from stillme import estimates
from stillme.core import rubric
from stillme.core.errors import StillmeError, UnknownName
from stillme.core.files import write_csv
from stillme.core.rubric import AXES, SHIFTS
from stillme.core.types import Arm
from stillme.estimates import Settings
from stillme.estimates.headlines import Standing
from stillme.estimates.people import against_people, corrected, with_people
from stillme.findings.calibration import standing_of
from stillme.findings.tables.estimates import NOTE, row_of, text_row_of
from stillme.runs import RecordedRun, behaviour
from stillme.runs.behaviour import agreement_of
from stillme.runs.control_pairs.reading import answered_by

_log = logging.getLogger(__name__)

Row = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What became of one analysis."""

    path: Path
    rows: int
    problem: str = ""
    """Why there is no table, if something broke: the other analyses are written all the same."""


class Watch(Protocol):
    """Is told how the analyses go."""

    def starts(self, name: str, place: int, total: int) -> None:
        """One of `total` is being computed, or `rows` before the first of them: the run is being read."""

    def ends(self, name: str, written: Written) -> None:
        """Its table is there."""


def analyse(
    run: RecordedRun,
    *,
    only: Sequence[str] = (),
    watch: Watch | None = None,
) -> dict[str, Written]:
    """Write tables into tables/statistics of the run: these, or all but those `BY_NAME`; tell `watch` of each."""
    for name in only:
        if name not in ANALYSES:
            raise UnknownName.among("analysis", name, ANALYSES, f"There are {', '.join(ANALYSES)}.")
    folder = run.folder / "tables" / "statistics"
    folder.mkdir(parents=True, exist_ok=True)
    chosen = tuple(only or (name for name in ANALYSES if name not in BY_NAME))
    if watch:
        watch.starts("rows", 0, len(chosen))
    standing, _ = standing_of(run), run.results
    written: dict[str, Written] = {}
    for place, name in enumerate(chosen, start=1):
        if watch:
            watch.starts(name, place, len(chosen))
        path = folder / f"{name}.csv"
        try:
            written[name] = _write(path, ANALYSES[name](run), standing)
        except StillmeError:
            raise
        except Exception as error:
            # One analysis that breaks must not cost the others.
            _log.exception("the analysis %s broke", name)
            path.unlink(missing_ok=True)
            written[name] = Written(path=path, rows=0, problem=f"{type(error).__name__}: {error}")
        if watch:
            watch.ends(name, written[name])
    return written


def _write(path: Path, results: Sequence[object], standing: Standing) -> Written:
    rows = [text_row_of(result) for result in results]
    _note(rows, standing)
    # What has no rows has no columns either; an earlier table of that name would mislead.
    if not rows:
        path.unlink(missing_ok=True)
        return Written(path=path, rows=0)
    columns: Row = {}
    for row in rows:
        columns |= row
    return Written(path=write_csv(path, list(columns), rows), rows=len(rows))


def _note(rows: Sequence[Row], standing: Standing) -> None:
    """Say in each row that has a judge what calibration says of it."""
    note_of = cache(partial(estimates.mark, standing))
    for row in rows:
        # A reader is its own control: every number of it is a difference from what it says of unedited pictures.
        if "judge" in row and row.get("axis") not in (*AXES, *SHIFTS):
            row[NOTE] = note_of(row["judge"], row.get("quantity") or row.get("axis", ""))


def _columns(run: RecordedRun) -> tuple[estimates.Edits, tuple[estimates.Scores, ...], Settings]:
    """What most analyses take."""
    return run.results.edits, run.results.scores, run.settings


def _pooling(run: RecordedRun) -> tuple[bool, ...]:
    """Each editor alone, then all together, as the paper pools; one editor is not pooled."""
    return (False, True) if len(run.results.edits.editors) > 1 else (False,)


# -- the analyses ----------------------------------------------------------------------------------------------------


def _intersections(run: RecordedRun) -> Sequence[object]:
    edits, scores, settings = _columns(run)
    crossed = settings.factors[:2]
    return estimates.by_intersection(edits, scores, settings, crossed) if len(crossed) == 2 else []


def _contrasts(run: RecordedRun) -> Sequence[object]:
    edits, scores, settings = _columns(run)
    rows = estimates.contrasts(edits, scores, settings, against=("reference", "rest", "pairs"))
    if True in _pooling(run):
        rows += estimates.contrasts(edits.pooled(), scores, settings, against=("reference", "rest"))
    return rows


def _pooled(run: RecordedRun) -> Sequence[object]:
    edits, scores, settings = _columns(run)
    return estimates.estimate(edits.pooled(), scores, settings) if True in _pooling(run) else []


def _row_tests(run: RecordedRun) -> Sequence[object]:
    edits, scores, settings = _columns(run)
    parts = [edits.pooled() if pool else edits for pool in _pooling(run)]
    between = [test for part in parts for test in estimates.row_tests(part, scores, settings)]
    paired = [
        test
        for arm in run.results.edits.treated
        for pool in _pooling(run)
        for test in estimates.paired_row_tests(edits, scores, arm=arm, pool=pool)
    ]
    return [*between, *paired]


def _mitigation(run: RecordedRun) -> Sequence[object]:
    return [
        effect
        for arm in run.results.edits.treated
        for pool in _pooling(run)
        for effect in estimates.paired_effects(*_columns(run), arm=arm, pool=pool)
    ]


def _above_floor(run: RecordedRun) -> Sequence[object]:
    arms = [arm for arm in run.results.edits.arms if arm != Arm.NOOP]
    if Arm.NOOP not in run.results.edits.arms:
        return []
    return [estimate for arm in arms for estimate in estimates.above_floor(*_columns(run), arm=arm)]


def _coverage(run: RecordedRun) -> Sequence[object]:
    combination = behaviour.combination(run)
    primary = combination.primary if combination else ""
    return [{"primary": primary, **row_of(share)} for share in behaviour.coverage(run)]


def _people(run: RecordedRun) -> Sequence[object]:
    return [
        measure
        for judge, people in _rated_by_people(run)
        for measure in against_people(run.results.edits, judge, people, run.settings)
    ]


def _corrected(run: RecordedRun) -> Sequence[object]:
    return [
        estimate
        for judge, people in _rated_by_people(run)
        # Who was drawn is no quantity to correct.
        if not rubric.load().is_nominal(judge.axis)
        for estimate in corrected(run.results.edits, judge, people, run.settings, chances=run.results.chances)
    ]


def _rated_by_people(run: RecordedRun) -> Iterator[tuple[estimates.Scores, estimates.Scores]]:
    return with_people(run.results.scores, run.design.people)


ANALYSES: Mapping[str, Callable[[RecordedRun], Sequence[object]]] = {
    "contrasts": _contrasts,
    "pooled": _pooled,
    "cuts": lambda run: estimates.at_every_cut(*_columns(run)),
    "prompts": lambda run: estimates.by_prompt(*_columns(run)),
    "subcategories": lambda run: estimates.by_prompt(*_columns(run), by="subcategory", groups=True),
    "intersections": _intersections,
    "icc": lambda run: estimates.intraclass_correlations(*_columns(run)),
    "row_tests": _row_tests,
    "mitigation": _mitigation,
    "above_floor": _above_floor,
    "roles": lambda run: estimates.adherence(*_columns(run), genders=run.genders),
    "shifts": lambda run: read.shifts(run.settings.confidence) if (read := run.readings) else [],
    "transitions": lambda run: read.transitions if (read := run.readings) else [],
    "readings": lambda run: read.counts if (read := run.readings) else [],
    "agreement": lambda run: agreement_of(run),
    "position_bias": lambda run: behaviour.position_bias(run),
    "repeatability": lambda run: behaviour.repeatability(run),
    "disclosure": lambda run: behaviour.disclosure_effect(run),
    "coverage": _coverage,
    "control_pairs": lambda run: [row for answers in answered_by(run.store, run.judges) for row in answers.by_axis],
    "against_people": _people,
    "corrected": _corrected,
}
"""Name of the table, and what makes it. Each gives nothing where the audit has nothing for it."""

BY_NAME = frozenset({"cuts", "prompts", "subcategories", "intersections", "row_tests"})
"""Neither the report nor a table of the paper shows them, and they are more than half of all rows."""
