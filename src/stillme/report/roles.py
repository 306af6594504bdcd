"""Role instructions: how often editors follow the stereotype, against a coin."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from stillme.estimates.roles import Adherence
from stillme.report import forest
from stillme.report.data import ReportData
from stillme.report.forest import Scale
from stillme.types import Interval

ROW, TOP = 26, 26
_LAYOUTS = {"role_pair": "two people, one request", "role_single": "one person, one request"}
_PRONOUNS = {
    "": "all sentences",
    "pro": "pronoun with it",
    "anti": "pronoun against it",
    "none": "no pronoun",
    "pro - anti": "with − against",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """One layout by one judge: a panel per editor and arm."""

    layout: str
    judge: str
    panels: tuple[tuple[str, str, Markup], ...]
    """Editor, arm, drawing."""


def roles(data: ReportData) -> list[Roles]:
    """Everything that was asked about roles, for either place of the two people together."""
    found: dict[tuple[str, str], dict[tuple[str, str], list[Adherence]]] = {}
    for each in data.roles:
        if not each.place:
            cell = found.setdefault((each.layout, each.judge), {})
            cell.setdefault((each.editor, each.arm), []).append(each)
    return [
        Roles(
            layout=_LAYOUTS[layout],
            judge=judge,
            panels=tuple((editor, arm, _draw(editor, rows)) for (editor, arm), rows in sorted(panels.items())),
        )
        for (layout, judge), panels in found.items()
    ]


def _draw(editor: str, rows: list[Adherence]) -> Markup:
    shares = [each for each in rows if each.pronoun != "pro - anti"]
    differences = [each for each in rows if each.pronoun == "pro - anti"]
    scale = Scale(low=0.0, high=1.0)
    bottom = TOP + ROW * len(rows)
    coin = scale.at(0.5)
    body = [
        forest.axis("success", scale, bottom),
        Markup('<line class="coin" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>').format(f"{coin:.1f}", TOP - 6, bottom),
    ]
    for place, each in enumerate([*shares, *differences]):
        body.append(_row(each, scale, TOP + ROW * place + ROW / 2))
    said = "; ".join(f"{_PRONOUNS[each.pronoun]} {_said(each)}" for each in rows)
    return Markup('<svg class="forest" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        forest.WIDTH, bottom + 8, f"Stereotype followed, {editor}: {said}", Markup("").join(body)
    )


def _row(found: Adherence, on: Scale, y: float) -> Markup:
    strong = " strong" if not found.pronoun else ""
    label = Markup('<text class="label{}" x="{}" y="{}">{}</text>').format(
        strong, forest.LABEL - 10, f"{y + 4:.1f}", _PRONOUNS[found.pronoun]
    )
    if not isinstance(found.outcome, Interval):
        return label + Markup('<text class="none" x="{}" y="{}">{}</text>').format(
            forest.LABEL, f"{y + 4:.1f}", found.outcome.reason
        )
    interval = found.outcome
    drawing = Markup("")
    if found.pronoun != "pro - anti":
        drawing = Markup(
            '<line class="whisker" x1="{}" x2="{}" y1="{}" y2="{}"/><circle class="point{}" cx="{}" cy="{}" r="5"/>'
        ).format(
            f"{on.at(interval.low):.1f}",
            f"{on.at(interval.high):.1f}",
            f"{y:.1f}",
            f"{y:.1f}",
            strong,
            f"{on.at(interval.value):.1f}",
            f"{y:.1f}",
        )
    return (
        label
        + drawing
        + Markup('<text class="value{}" x="{}" y="{}">{}<tspan class="span" dx="6">{}</tspan></text>').format(
            strong,
            forest.WIDTH - forest.VALUES + 14,
            f"{y + 4:.1f}",
            f"{100 * interval.value:.1f} %".replace("-", "−"),
            f"{100 * interval.low:.0f} to {100 * interval.high:.0f}".replace("-", "−"),
        )
    )


def _said(found: Adherence) -> str:
    if not isinstance(found.outcome, Interval):
        return found.outcome.reason
    each = found.outcome
    return f"{100 * each.value:.1f} % ({100 * each.low:.1f} to {100 * each.high:.1f} %), {found.edits} edits"
