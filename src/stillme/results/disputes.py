"""Where the judges of an audit agree, and which edits they leave for people to look at."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stillme import rubric
from stillme.audit import Audit
from stillme.estimates import Scores, Settings
from stillme.estimates.agreement import Agreement, agreement
from stillme.estimates.tables import write_csv
from stillme.judges.flags import PRIORITIES, Flag, flag
from stillme.results import Results
from stillme.types import Interval

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
    """Of the results."""
    flag: Flag


def between(audit: Audit, gathered: Results) -> list[Dispute]:
    """Edits that people should look at, the most urgent first."""
    apart = dict(_apart(raters(audit, gathered)))
    found: list[Dispute] = []
    for row in range(len(gathered.edits)):
        raised = flag({axis: float(gap[row]) for axis, gap in apart.items()})
        if raised:
            found.append(Dispute(row=row, flag=raised))
    return sorted(found, key=lambda each: (PRIORITIES.index(each.flag.priority), -max(each.flag.apart.values())))


def raters(audit: Audit, gathered: Results) -> list[Scores]:
    """What the audit's own judges said on the scales; people and what is made of others stay out."""
    own = {named.name for named in audit.judges if named.judge.capabilities.kind != "person"}
    scales = {axis.name for axis in rubric.load().axes.values() if axis.is_scale}
    return [score for score in gathered.scores if score.judge in own and score.axis in scales]


def write_judges(audit: Audit, gathered: Results, settings: Settings) -> list[Path]:
    """Write judges/flagged.csv and judges/agreement.csv into tables; nothing where there is only one judge."""
    said = raters(audit, gathered)
    if len({score.judge for score in said}) < 2:
        return []
    tables = audit.folder / "tables" / FOLDER
    tables.mkdir(parents=True, exist_ok=True)
    flagged = [dict(row) for row in _flagged(gathered, said, between(audit, gathered))]
    agreed = [_agreed(each) for each in agreement(gathered.edits, said, settings)]
    return [
        write_csv(tables / "flagged.csv", _FLAGGED, flagged),
        write_csv(tables / "agreement.csv", _AGREEMENT, agreed),
    ]


def _apart(said: Sequence[Scores]) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """For every axis the largest difference between two judges; 0 where fewer than two gave a score."""
    for axis in dict.fromkeys(score.axis for score in said):
        given = np.stack([score.value for score in said if score.axis == axis])
        high = np.where(np.isnan(given), -np.inf, given).max(axis=0)
        low = np.where(np.isnan(given), np.inf, given).min(axis=0)
        yield axis, np.where(np.isfinite(high), high - low, 0.0)


def _flagged(gathered: Results, said: Sequence[Scores], disputes: Sequence[Dispute]) -> Iterator[dict[str, str]]:
    edits = gathered.edits
    for dispute, score in itertools.product(disputes, said):
        if score.axis in dispute.flag.apart and not np.isnan(score.value[dispute.row]):
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


def _agreed(found: Agreement) -> dict[str, str]:
    row = {
        "axis": found.axis,
        "measure": found.measure,
        "factor": found.factor or "everyone",
        "group": found.group or "all",
        "judges": str(found.raters),
        "edits": str(found.items),
        "ratings": str(found.ratings),
        "portraits": str(found.portraits),
    }
    if isinstance(found.outcome, Interval):
        numbers = (found.outcome.value, found.outcome.low, found.outcome.high)
        return row | dict(zip(("value", "low", "high"), (f"{number + 0.0:.9g}" for number in numbers), strict=True))
    return row | {"not_estimable": found.outcome.reason}
