"""A whole audit on any machine: of planted gaps, measured and shown side by side, or of neural editors that exist."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from stillme import estimates, registry, rubric
from stillme.audit.load import FILE
from stillme.audit.template import small_audit
from stillme.errors import Interrupted, StillmeError
from stillme.files import write_whole
from stillme.pipeline import Ended, Options, run_stages
from stillme.portraits.copying import shrink_into
from stillme.portraits.synthetic import portraits
from stillme.results import Run, known_answers
from stillme.stages.tally import Tally
from stillme.types import Interval, NotEstimable, PlantedGap, Portrait


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """The demo's report and what was planted and recovered."""

    report: Path
    gaps: tuple[PlantedGap, ...]

    def as_json(self) -> dict[str, Any]:
        """`{"report": path, "gaps": [{"quantity", "editor", "planted", "recovered", "low", "high", …}]}`."""
        return {"report": str(self.report), "gaps": [_as_json(gap) for gap in self.gaps]}

    def as_text(self) -> str:
        """A table for people."""
        lines = [
            "",
            "The audit does not know what was planted. Its estimates, each group minus the rest:",
            "",
            f"  {'editor':<14}{'quantity':<20}{'group':<12}{'planted':>9}{'recovered':>11}  95 % interval",
        ]
        for gap in self.gaps:
            group = f"{gap.factor} {gap.group}"
            title = rubric.load().title(gap.quantity)
            lines.append(f"  {gap.editor:<14}{title:<20}{group:<12}{_number(gap, gap.planted):>9}{_recovered(gap)}")
        return "\n".join([*lines, "", f"Report: {self.report}"])


REAL_AUDIT = """\
# Three neural editors that exist and run on this machine, on rendered people who do not exist.
# They read no instruction; each has one prompt of its own.

title = "Three on-device face stylizers"

[portraits]
source = "synthetic"

[prompts]
sets = ["styles"]

[[editors]]
use = "mediapipe-stylizer:color-sketch"
name = "color-sketch"
seeds = [1]

[[editors]]
use = "mediapipe-stylizer:color-ink"
name = "color-ink"
seeds = [1]

[[editors]]
use = "mediapipe-stylizer:oil-painting"
name = "oil-painting"
seeds = [1]

[[judges]]
use = "instruments"

[estimates]
factors = ["preset", "gender_presentation"]
confidence = 0.95
"""

_SKIN = "skin_delta_l"
_PORTRAITS = "portraits"
_LONGEST = 512
"""Pixels: what is recovered is the same as at 768, in two thirds of the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkinGap:
    """How differently one editor changes the skin of the darkest and of the lightest preset, in L*."""

    editor: str
    darkest: str
    lightest: str
    gap: Interval | NotEstimable

    def as_json(self) -> dict[str, Any]:
        """`{"editor", "darkest", "lightest", "value", "low", "high"}`, with `reason` where there is no value."""
        row: dict[str, Any] = {"editor": self.editor, "darkest": self.darkest, "lightest": self.lightest}
        if isinstance(self.gap, Interval):
            return row | {"value": self.gap.value, "low": self.gap.low, "high": self.gap.high}
        return row | {"value": None, "low": None, "high": None, "reason": self.gap.reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class RealResult:
    """The report on editors that exist, and what it says of skin."""

    report: Path
    gaps: tuple[SkinGap, ...]

    def as_json(self) -> dict[str, Any]:
        """`{"report": path, "gaps": [{"editor", "darkest", "lightest", "value", "low", "high"}]}`."""
        return {"report": str(self.report), "gaps": [gap.as_json() for gap in self.gaps]}

    def as_text(self) -> str:
        """A table for people."""
        lines = [
            "",
            "Nothing was planted: these editors are real. How much lighter (+) or darker (-) each makes the skin of",
            "the darkest preset, minus the same for the lightest, in L*:",
            "",
            f"  {'editor':<16}{'presets':<10}{'gap':>7}  95 % interval",
        ]
        for gap in self.gaps:
            value = gap.gap
            numbers = (
                f"{value.value:>+7.1f}  {value.low:+.1f} to {value.high:+.1f}"
                if isinstance(value, Interval)
                else f"         {value.reason}"
            )
            lines.append(f"  {gap.editor:<16}{f'{gap.darkest} - {gap.lightest}':<10}{numbers}")
        return "\n".join([*lines, "", f"Report: {self.report}"])


def run_real_demo(folder: Path, *, watch: Callable[[Tally], None], say: Callable[[str], None]) -> RealResult:
    """Fetch the editors' weights, audit them on the embedded portraits, and say what they do to skin."""
    # Imported here: the planted demo needs no editor of this kind.
    from stillme.editors.neural.stylizer import fetch_models

    registry.build("editor", "mediapipe-stylizer", {})
    fetch_models(say)
    _write_audit(folder, REAL_AUDIT)
    report = _complete(folder, watch, say)
    with Run.open(folder) as run:
        return RealResult(report=report, gaps=tuple(_skin_gaps(run)))


def _skin_gaps(run: Run) -> Iterator[SkinGap]:
    darkest, *_, lightest = _by_lightness(run.design.portraits)
    for editor in run.design.editors:
        gap = estimates.gap(
            run.results.edits,
            run.results.scores,
            quantity=_SKIN,
            editor=editor.name,
            factor="preset",
            level=darkest,
            reference=lightest,
            settings=run.settings,
        )
        yield SkinGap(editor=editor.name, darkest=darkest, lightest=lightest, gap=gap)


def _by_lightness(portraits: Sequence[Portrait]) -> list[str]:
    """The presets from the darkest to the lightest skin, as measured in the pictures."""
    skins: dict[str, list[float]] = {}
    for portrait in portraits:
        skins.setdefault(portrait.attributes["preset"], []).append(float(portrait.attributes["skin_l"]))
    return sorted(skins, key=lambda preset: fmean(skins[preset]))


def run_demo(folder: Path, *, watch: Callable[[Tally], None], say: Callable[[str], None]) -> DemoResult:
    """Write the small audit and its portraits into `folder` and run it; resumes an earlier demo."""
    write_demo(folder)
    report = _complete(folder, watch, say)
    with Run.open(folder) as run:
        return DemoResult(report=report, gaps=tuple(known_answers.gaps(run)))


def write_demo(folder: Path) -> None:
    """Write the audit of planted gaps, with small copies of the embedded portraits."""
    text = small_audit("stillme demo", source=f"./{_PORTRAITS}")
    _write_audit(folder, text)
    shrink_into(folder / _PORTRAITS, portraits(), longest=_LONGEST)


def _write_audit(folder: Path, text: str) -> None:
    """Write audit.toml, but not over another audit's."""
    file = folder / FILE
    if file.exists() and file.read_text("utf-8") != text:
        raise StillmeError(f"{file} is another audit's. Choose an empty folder with --out.")
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(file, text)


def _complete(folder: Path, watch: Callable[[Tally], None], say: Callable[[str], None]) -> Path:
    """Run the audit in a folder, or what is missing of it, and give the path of its report."""
    summary = run_stages(folder, ("edit", "judge", "estimate", "report"), Options(watch=watch, say=say))
    if summary.ended is not Ended.COMPLETE or summary.report is None:
        raise Interrupted("The demo was interrupted; run the same command to resume.")
    return summary.report


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
