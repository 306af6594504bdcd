"""A study at a glance, for the terminal."""

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
            "agreement": [each.as_json() for each in self.agreements],
            "raters": [each.as_json() for each in self.raters],
        }

    def as_text(self) -> str:
        """For people."""
        now = self.progress
        tasks = f"{now.done} of {now.needed} tasks finished, {now.slots.get('held', 0)} under way"
        gone = f"{now.slots.get('void', 0)} given up, {now.withdrawn} withdrawn"
        lines = [f"{now.state}: {tasks}, {gone}; {now.answers:,} answers"]
        if now.median_minutes is not None:
            pay = f", {now.per_hour:.2f} an hour" if now.per_hour is not None else ""
            lines.append(f"median {now.median_minutes:.1f} minutes a task{pay}")
        if now.alarm:
            lines.append(f"ALARM: {now.alarm}")
        for each in self.agreements:
            title = rubric.load().title(each.axis)
            said = each.reason if each.alpha is None else f"{each.alpha:.2f} ({each.low:.2f} to {each.high:.2f})"
            lines.append(f"  alpha {title:<20}{said}, {each.units} outputs")
        flagged = [each for each in self.raters if each.flags]
        lines += [f"  flag {each.rater}: {', '.join(each.flags)}" for each in flagged]
        return "\n".join(lines)


def overview_of(study: Study) -> Overview:
    """Look at a study; places whose time ran out are freed first."""
    with study.database.writing() as connection:
        expire(connection, study.id, time.time())
    with study.database.reading() as connection:
        return Overview(
            progress=progress(study, connection),
            agreements=tuple(agreements(study, connection)),
            raters=tuple(rater_qualities(study, connection)),
        )
