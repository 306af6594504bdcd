"""Role instructions: how often editors follow the stereotype, against 50 %."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from stillme.core.types import Interval
from stillme.estimates import numbers
from stillme.estimates.roles import AXES, Adherence, Layout
from stillme.report import forest, svg
from stillme.report.data import ReportData
from stillme.report.forest import Scale

ROW, TOP = 26, 26
_LAYOUTS = {"role_pair": "two people, one request", "role_single": "one person, one request"}
_DIFFERENCE = "pro - anti"
_PRONOUNS = {
    "": "all sentences",
    "pro": "pronoun with it",
    "anti": "pronoun against it",
    "none": "neutral pronoun",
    _DIFFERENCE: "with − against",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleFigure:
    """One layout by one judge: a panel per editor and arm."""

    layout: str
    judge: str
    axis: str
    panels: tuple[tuple[str, str, Markup], ...]
    """Editor, arm, drawing."""
    undecided: int
    """Edits that are left out because the judge could not tell, or combined judges disagree."""


def role_figures(data: ReportData) -> list[RoleFigure]:
    """Every layout and judge, for both positions of the two people together."""
    figures: dict[tuple[Layout, str], dict[tuple[str, str], list[Adherence]]] = {}
    for adherence in data.roles:
        if not adherence.place:
            panels = figures.setdefault((adherence.layout, adherence.judge), {})
            panels.setdefault((adherence.editor, adherence.arm), []).append(adherence)
    return [
        RoleFigure(
            layout=_LAYOUTS[layout],
            judge=judge,
            axis=AXES[layout],
            undecided=sum(row.abstained for rows in panels.values() for row in rows if not row.pronoun),
            panels=tuple((editor, arm, _draw(editor, rows)) for (editor, arm), rows in sorted(panels.items())),
        )
        for (layout, judge), panels in figures.items()
    ]


def _draw(editor: str, adherences: list[Adherence]) -> Markup:
    scale = Scale(low=0.0, high=1.0)
    bottom = TOP + ROW * len(adherences)
    parts = [forest.axis("success", scale, bottom), svg.reference_line(scale.at(0.5), TOP - 6, bottom)]
    for row, adherence in enumerate(sorted(adherences, key=lambda adherence: adherence.pronoun == _DIFFERENCE)):
        parts.append(_row(adherence, scale, TOP + ROW * row + ROW / 2))
    shares = "; ".join(f"{_PRONOUNS[adherence.pronoun]} {_share(adherence)}" for adherence in adherences)
    return svg.svg("forest", (svg.WIDTH, bottom + 8), f"Stereotype followed, {editor}: {shares}", parts)


def _row(adherence: Adherence, on: Scale, y: float) -> Markup:
    strong = not adherence.pronoun
    parts = [svg.label(y, _PRONOUNS[adherence.pronoun], strong=strong, longest=20)]
    interval = adherence.outcome
    if not isinstance(interval, Interval):
        return Markup("").join([*parts, svg.no_value(y, interval.reason)])
    if adherence.pronoun != _DIFFERENCE:
        parts.append(svg.whisker(on.at(interval.low), on.at(interval.high), y))
        parts.append(svg.point(on.at(interval.value), y, 5, strong=strong))
    low, high = (numbers.decimal(100 * limit, 0) for limit in (interval.low, interval.high))
    parts.append(svg.value(y, numbers.percent(interval.value), f"{low} to {high}", strong=strong))
    return Markup("").join(parts)


def _share(adherence: Adherence) -> str:
    interval = adherence.outcome
    if not isinstance(interval, Interval):
        return interval.reason
    span = f"{numbers.decimal(100 * interval.low, 1)} to {numbers.percent(interval.high)}"
    return f"{numbers.percent(interval.value)} ({span}), {adherence.edits} edits"
