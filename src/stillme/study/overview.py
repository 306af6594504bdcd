"""A summary of a study for the terminal."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from stillme import rubric
from stillme.study.agreement import AxisAgreement, agreements
from stillme.study.assignment import expire
from stillme.study.opening import Study
from stillme.study.progress import Progress, progress
from stillme.study.quality import RaterQuality, rater_qualities


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Progress, agreement and the raters' quality."""

    progress: Progress
    agreements: tuple[AxisAgreement, ...]
    raters: tuple[RaterQuality, ...]

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "progress": self.progress.as_json(),
            "agreement": [agreement.as_json() for agreement in self.agreements],
            "raters": [rater.as_json() for rater in self.raters],
        }

    def as_text(self) -> str:
        """For people."""
        now = self.progress
        tasks = f"{now.counting} of {now.needed} tasks finished that count, {now.under_way} under way"
        lost = f"{now.slots.get('void', 0)} places given up, {now.excluded} raters excluded, {now.withdrawn} withdrawn"
        lines = [f"{now.state}: {tasks}; {now.answers:,} answers", lost]
        if now.state == "open":
            lines.append(f"{now.raters_needed} raters still needed")
        if now.deletion_pending:
            lines.append("deletion of withdrawn data still to be finished: another program reads the database")
        if now.median_minutes is not None:
            pay = f", {now.per_hour:.2f} per hour" if now.per_hour is not None else ""
            lines.append(f"median {now.median_minutes:.1f} minutes per task{pay}")
        if now.alarm:
            lines.append(f"ALARM: {now.alarm}")
        for axis in self.agreements:
            alpha = _measured(axis.alpha, axis.low, axis.high, axis.reason)
            kappa = _measured(axis.kappa, axis.kappa_low, axis.kappa_high, axis.kappa_reason)
            title = rubric.load().title(axis.axis)
            lines.append(f"  {title:<20} alpha {alpha}, Fleiss' kappa {kappa}, {axis.units} outputs")
        lines += [f"  flag {rater.rater}: {', '.join(rater.flags)}" for rater in self.raters if rater.flags]
        return "\n".join(lines)


def _measured(value: float | None, low: float | None, high: float | None, reason: str) -> str:
    """`0.31 (0.22 to 0.40)`, or why there is no number."""
    return reason if value is None else f"{value:.2f} ({low:.2f} to {high:.2f})"


def overview_of(study: Study) -> Overview:
    """Summarise a study; places whose lease ran out are freed first."""
    with study.database.writing() as connection:
        expire(connection, study.id, time.time())
    with study.database.reading() as connection:
        return Overview(
            progress=progress(study, connection),
            agreements=tuple(agreements(study, connection)),
            raters=tuple(rater_qualities(study, connection)),
        )
