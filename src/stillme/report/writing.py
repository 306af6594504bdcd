"""One self-contained page: no network, no outside script, the same bytes for the same rows."""

from __future__ import annotations

import base64
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from stillme import rubric
from stillme.estimates import Disparity, mark
from stillme.estimates.disparity import DEALS
from stillme.report import forest, gallery, numbers
from stillme.report.caveats import caveats
from stillme.report.data import ReportData
from stillme.report.findings import Findings, Gap, find
from stillme.types import Estimate, Interval, PlantedGap

FIGURES = 6
"""Figures shown at once; the others are one click away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A quantity by a factor: one panel per editor, on one scale."""

    quantity: str
    title: str
    unit: str
    factor: str
    judge: str
    panels: tuple[tuple[str, str, Markup], ...]
    """Editor, arm, drawing."""
    beyond_chance: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedRow:
    """One planted gap beside what was recovered."""

    gap: PlantedGap
    title: str
    planted: str
    realised: str
    recovered: str
    span: str
    drawing: Markup
    found: bool | None
    """Whether the interval holds the planted value; None where there is no interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One row of the table of estimates."""

    found: Estimate
    title: str
    who: str
    text: str
    sort: str
    chance: str
    method: str


def write(folder: Path, data: ReportData) -> Path:
    """Write `report.html` into `folder`, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "report.html"
    partial = folder / f".report.{os.getpid()}"
    with partial.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write(render(data))
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(path)
    return path


def render(data: ReportData) -> str:
    """The page as text."""
    environment = Environment(
        loader=PackageLoader("stillme.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = files("stillme.report").joinpath("page")
    style, script = (page.joinpath(name).read_text("utf-8") for name in ("style.css", "script.js"))
    findings = find(data)
    figures = _figures(data, findings)
    pairs = gallery.pictures(data, data.pictures)
    return environment.get_template("report.html").render(
        data=data,
        findings=findings,
        hero=_hero(pairs),
        examples=[(gap, _example(data, gap), numbers.factor(gap.found.factor)) for gap in findings.worst],
        shown=figures[:FIGURES],
        folded=figures[FIGURES:],
        planted=_planted(data.planted),
        pictures=pairs,
        origins=gallery.label_origins(data),
        cells=[_cell(each) for each in sorted(data.estimates, key=_place)],
        caveats=list(caveats(data, findings)),
        licences=Counter(portrait.licence for portrait in data.edits.portraits),
        badges=[*data.badges, *(["planted effects"] if data.planted else [])],
        marks={name: place % 6 for place, name in enumerate(data.edits.editors)},
        deals=DEALS,
        note=partial(mark, data.standing),
        rubric_version=rubric.load().version,
        number=numbers.number,
        limits=numbers.limits,
        unit=numbers.unit,
        factor_name=numbers.factor,
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script),
    )


def _policy(style: str, script: str) -> str:
    """Nothing may be fetched; only this very style and this very script may apply."""
    return (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"


def _hero(pairs: Sequence[gallery.Picture]) -> list[gallery.Picture]:
    """Four different people for the top of the page; none rather than a gap in the row."""
    people: dict[str, gallery.Picture] = {}
    for picture in pairs:
        if picture.source and picture.edited and picture.shows:
            people.setdefault(picture.portrait, picture)
    return list(people.values())[:4] if len(people) >= 4 else []


def _example(data: ReportData, gap: Gap) -> gallery.Picture | None:
    return gallery.example(
        data,
        editor=gap.found.editor,
        arm=gap.found.arm,
        axis=gallery.axis_of(gap.found.quantity),
        factor=gap.found.factor,
        group=gap.worst.group,
    )


def _figures(data: ReportData, findings: Findings) -> list[Figure]:
    panels: dict[tuple[str, str, str], list[forest.Panel]] = {}
    everyone = {_owner(each): each for each in data.headlines if each.scope == "all"}
    varying = {
        (gap.quantity, gap.judge, gap.factor)
        for gap in data.headlines
        if isinstance(gap, Disparity) and numbers.is_headline(gap.quantity) and _varies(gap)
    }
    groups: dict[tuple[str, ...], list[Estimate]] = {}
    for each in data.headlines:
        if each.scope == "group":
            groups.setdefault((*_owner(each), each.factor), []).append(each)
    for gap in data.headlines:
        if isinstance(gap, Disparity) and (gap.quantity, gap.judge, gap.factor) in varying:
            members = groups.get((*_owner(gap), gap.factor), [])
            panel = forest.Panel(
                quantity=gap.quantity,
                editor=gap.editor,
                arm=gap.arm,
                factor=gap.factor,
                overall=everyone[_owner(gap)],
                groups=tuple(sorted(members, key=lambda each: each.group)),
                gap=gap,
            )
            panels.setdefault((gap.quantity, gap.judge, gap.factor), []).append(panel)
    certain = {(gap.found.quantity, gap.found.judge, gap.found.factor) for gap in findings.gaps if gap.beyond_chance}
    ordered = sorted(panels, key=lambda key: (key not in certain, numbers.headline_place(key[0]), key))
    return [_figure(key, panels[key], beyond_chance=key in certain) for key in ordered]


def _figure(key: tuple[str, str, str], panels: list[forest.Panel], *, beyond_chance: bool) -> Figure:
    quantity, judge, factor = key
    scale = forest.scale(panels)
    return Figure(
        quantity=quantity,
        title=numbers.title(quantity),
        unit=numbers.unit(quantity),
        factor=numbers.factor(factor),
        judge=judge,
        panels=tuple((panel.editor, panel.arm, forest.draw(panel, scale)) for panel in panels),
        beyond_chance=beyond_chance,
    )


def _varies(gap: Disparity) -> bool:
    return isinstance(gap.outcome, Interval) and (gap.outcome.value > 0 or bool(gap.null and gap.null.high > 0))


def _owner(found: Estimate) -> tuple[str, str, str, str]:
    return found.quantity, found.editor, found.arm, found.judge


def _planted(gaps: Iterable[PlantedGap]) -> list[PlantedRow]:
    gaps = list(gaps)
    spans: dict[str, tuple[float, float]] = {}
    for quantity in {gap.quantity for gap in gaps}:
        values = [
            value
            for gap in gaps
            if gap.quantity == quantity and isinstance(gap.recovered, Interval)
            for value in (gap.planted, gap.recovered.low, gap.recovered.high)
        ]
        spans[quantity] = forest.dumbbell_span(values)
    return [_planted_row(gap, spans[gap.quantity]) for gap in gaps]


def _planted_row(gap: PlantedGap, span: tuple[float, float]) -> PlantedRow:
    def shown(value: float) -> str:
        return numbers.number(gap.quantity, value, plus=True)

    known = gap.recovered if isinstance(gap.recovered, Interval) else None
    return PlantedRow(
        gap=gap,
        title=numbers.title(gap.quantity),
        planted=f"{shown(gap.planted)} {numbers.symbol(gap.quantity)}".strip(),
        realised=shown(gap.realised.value) if isinstance(gap.realised, Interval) else "–",
        recovered=shown(known.value) if known else "not estimable",
        span=f"{shown(known.low)} to {shown(known.high)}" if known else getattr(gap.recovered, "reason", ""),
        drawing=forest.dumbbell(gap.planted, known, span) if known else Markup(""),
        found=known.low <= gap.planted <= known.high if known else None,
    )


def _place(found: Estimate) -> tuple[int, str, str, str, str, str, int, str]:
    """Headline quantities first, editors side by side."""
    scope = ("all", "disparity", "group", "contrast").index(found.scope)
    place = numbers.headline_place(found.quantity)
    return place, found.quantity, found.judge, found.factor, found.arm, found.editor, scope, found.group


def _cell(found: Estimate) -> Cell:
    known = found.outcome if isinstance(found.outcome, Interval) else None
    null = found.null if isinstance(found, Disparity) else None
    who = {"all": "everyone", "disparity": "max − min"}.get(found.scope, found.group.replace(" - ", " − "))
    return Cell(
        found=found,
        title=numbers.title(found.quantity),
        who=f"{numbers.factor(found.factor)}: {who}" if found.factor else who,
        text=numbers.limits(found),
        sort=f"{known.value:.9g}" if known else "",
        chance=f"below {numbers.number(found.quantity, null.high)} · p = {null.omnibus:.4f}" if null and known else "",
        method=known.method if known else "not estimable",
    )
