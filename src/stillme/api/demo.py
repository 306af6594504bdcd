"""A whole audit on any machine: injected gaps next to the measured ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from stillme.api.pipeline import Ended, RunOptions, run_stages
from stillme.audit.loading import FILE
from stillme.audit.template import small_audit
from stillme.core import images, rubric
from stillme.core.errors import Interrupted, StillmeError
from stillme.core.files import write_csv, write_whole
from stillme.core.types import Interval, PlantedGap, Portrait
from stillme.portraits import portraits
from stillme.portraits.folder import TABLE
from stillme.runs import RecordedRun, injected
from stillme.work.tally import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """The demo's report, and the injected gaps next to the measured ones."""

    report: Path
    gaps: tuple[PlantedGap, ...]

    def as_json(self) -> dict[str, Any]:
        """`{"report": path, "gaps": [{"quantity", "editor", "planted", "recovered", "low", "high", …}]}`."""
        return {"report": str(self.report), "gaps": [_as_json(gap) for gap in self.gaps]}

    def as_text(self) -> str:
        """A table for people."""
        lines = [
            "",
            "The audit does not know what was injected. Its estimates, each group minus the rest:",
            "",
            f"  {'editor':<14}{'quantity':<20}{'group':<12}{'injected':>9}{'measured':>11}  95 % interval",
        ]
        for gap in self.gaps:
            group = f"{gap.factor} {gap.group}"
            title = rubric.load().title(gap.quantity)
            lines.append(f"  {gap.editor:<14}{title:<20}{group:<12}{_number(gap, gap.planted):>9}{_recovered(gap)}")
        return "\n".join([*lines, "", f"Report: {self.report}"])


_PORTRAITS = "portraits"
LONGEST = 384
"""Pixels: what is recovered is the same as at 768, in half of the time."""


def run_demo(folder: Path, *, watch: Callable[[Tally], None], say: Callable[[str], None]) -> DemoResult:
    """Write the small audit and its portraits into `folder` and run it; resumes an earlier demo."""
    write_demo(folder)
    summary = run_stages(folder, ("edit", "judge", "estimate", "report"), RunOptions(watch=watch, say=say))
    if summary.ended is not Ended.COMPLETE or summary.report is None:
        raise Interrupted("The demo was interrupted; run the same command to resume.")
    with RecordedRun.open(folder) as run:
        return DemoResult(report=summary.report, gaps=tuple(injected.gaps(run)))


def write_demo(folder: Path) -> None:
    """Write the audit of injected gaps, with small copies of the embedded portraits, but not over another audit."""
    text, file = small_audit("stillme demo", source=f"./{_PORTRAITS}"), folder / FILE
    if file.exists() and file.read_text("utf-8") != text:
        raise StillmeError(f"{file} is another audit's. Choose an empty folder with --out.")
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(file, text)
    shrink_into(folder / _PORTRAITS, portraits(), longest=LONGEST)


def _as_json(gap: PlantedGap) -> dict[str, Any]:
    row: dict[str, Any] = {"quantity": gap.quantity, "editor": gap.editor, "factor": gap.factor, "group": gap.group}
    row |= {"planted": gap.planted}
    if isinstance(gap.realised, Interval):
        row |= {"realised": gap.realised.value}
    if isinstance(gap.recovered, Interval):
        return row | {"recovered": gap.recovered.value, "low": gap.recovered.low, "high": gap.recovered.high}
    return row | {"recovered": None, "low": None, "high": None, "reason": gap.recovered.reason}


def _number(gap: PlantedGap, value: float) -> str:
    # A rounded zero has no sign.
    if gap.quantity in rubric.load().rates:
        return f"{round(100 * value, 1) + 0.0:+.1f} %"
    return f"{round(value, 2) + 0.0:+.2f}"


def _recovered(gap: PlantedGap) -> str:
    if not isinstance(gap.recovered, Interval):
        return f"  {gap.recovered.reason}"
    low, high = _number(gap, gap.recovered.low), _number(gap, gap.recovered.high)
    return f"{_number(gap, gap.recovered.value):>11}  {low} to {high}"


def shrink_into(folder: Path, portraits: Sequence[Portrait], *, longest: int) -> Path:
    """Write portraits, with all that is known of them, whose longer side has at most `longest` pixels.

    A folder that was written before is left as it is: its pictures are what earlier edits were made of.
    """
    if (folder / TABLE).exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)

    def copy(portrait: Portrait) -> dict[str, str]:
        file = f"{portrait.id}.png"
        picture = images.read_picture(portrait.image.path)
        picture.thumbnail((longest, longest), Image.Resampling.LANCZOS)
        write_whole(folder / file, images.encode_png(np.asarray(picture)))
        terms = {"licence": portrait.licence, "label_origin": portrait.label_origin, "block": portrait.block}
        return {"id": portrait.id, "file": file, **portrait.attributes, **terms}

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = list(pool.map(copy, portraits))
    write_csv(folder / TABLE, list(dict.fromkeys(name for row in rows for name in row)), rows)
    return folder
