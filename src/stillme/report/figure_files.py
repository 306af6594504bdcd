"""Figures for a notebook or a manuscript: the page's own drawings as SVG, each with its style inside."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from markupsafe import Markup

from stillme.core.errors import UnknownName
from stillme.core.files import write_whole
from stillme.estimates import Disparity
from stillme.report import figures
from stillme.report.data import ReportData
from stillme.report.drawings import bar_figures, dumbbell_figures, role_figures
from stillme.report.findings import find
from stillme.report.gaps import deciding
from stillme.report.into_what import into_what
from stillme.report.paper import paper_figures

_WIDTH = 470

Panel = tuple[str, str, Markup]
"""Editor, arm, drawing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """One figure, which shows itself in a notebook."""

    name: str
    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, file: str | Path) -> Path:
        """Write it as SVG."""
        return write_whole(Path(file).with_suffix(".svg"), self.svg)


def write_figures(folder: Path, data: ReportData) -> list[Path]:
    """Write every figure that the rows allow into `folder`; the same rows give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        Plot(name=name, svg=_page(data, title, panels)).save(folder / f"{name}.svg")
        for name, title, panels in _drawings(data)
    ]


def plot(data: ReportData, quantity: str, factor: str = "") -> Plot:
    """A quantity by group, a panel an editor; by the judge that decides where several answered."""
    gaps = [estimate for estimate in data.headlines if isinstance(estimate, Disparity)]
    factors, quantities = ([*dict.fromkeys(getattr(gap, name) for gap in gaps)] for name in ("factor", "quantity"))
    factor = factor or next(iter(factors), "")
    for kind, name, known in (("factor", factor, factors), ("quantity", quantity, quantities)):
        if name not in known:
            raise UnknownName.among(kind, name, known, f"This run has {', '.join(known) or 'none'}.")
    by_key = figures.panels_of(data, [gap for gap in gaps if (gap.quantity, gap.factor) == (quantity, factor)])
    decides = deciding(data)
    key = min(by_key, key=lambda key: (key[1], key[0]) not in decides)
    name, title, panels = _forest(key, by_key[key])
    return Plot(name=name, svg=_page(data, title, panels))


def _forest(key: figures.Key, panels: list[figures.Panel]) -> tuple[str, str, Sequence[Panel]]:
    forest = figures.figure(key, panels, {})
    drawings = [(editor, arm, drawing) for editor, arm, drawing, _ in forest.panels]
    return _named("forest", *key), f"{forest.title} by {forest.factor}{_by(forest.judge)}", drawings


def _drawings(data: ReportData) -> Iterator[tuple[str, str, Sequence[Panel]]]:
    """File name, title and panels of every drawing of the page."""
    for key, panels in figures.panels(data, find(data)).items():
        yield _forest(key, panels)
    yield from paper_figures(data)
    for bars in bar_figures(data):
        yield _named("scores", bars.axis, bars.judge, bars.factor), f"{bars.title} by {bars.factor}", bars.panels
    for change in dumbbell_figures(data):
        panels = [(panel.editor, change.arm, panel.drawing) for panel in change.panels]
        name = _named("change", change.quantity, change.judge, change.factor, change.arm)
        yield name, f"{change.title} by {change.factor}, {change.arm} against {change.against}", panels
    if section := into_what(data):
        for judge, panels in section["flows"]:
            yield _named("into_what", judge), f"Apparent {section['words']}, before and after{_by(judge)}", panels
    for roles in role_figures(data):
        title = f"How often the stereotype is followed, {roles.layout}{_by(roles.judge)}"
        yield _named("roles", roles.layout, roles.judge), title, roles.panels


def _named(*parts: str) -> str:
    return re.sub(r"[^\w-]+", "_", "-".join(part for part in parts if part))


def _by(judge: str) -> str:
    return f", {judge}" if judge else ""


def _page(data: ReportData, title: str, panels: Sequence[Panel]) -> str:
    """One file with every panel below the other, and the style of the page with its colours written out."""
    parts = [_text(20, title, "title")]
    y = 42
    for editor, arm, drawing in panels:
        width, height = _size(drawing)
        place = f'<svg x="0" y="{y + 6}" width="{width:g}" height="{height:g}" '
        # A link leads to the page's rows, which are not here.
        inner = Markup(_LINK.sub("", drawing).replace("<svg ", place, 1))
        ink = data.edits.editors.index(editor) % 6 if editor in data.edits.editors else 0
        parts += [_text(y, f"{editor}, {arm}", "head"), Markup('<g class="ink-{}">{}</g>').format(ink, inner)]
        y += int(height) + 34
    if data.disclosures:
        parts.append(_text(y, " · ".join(data.disclosures), "note"))
        y += 16
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + 16}" height="{y}" viewBox="-8 0 {_WIDTH + 16} {y}">'
        f"<style>{_style()}</style>{Markup('').join(parts)}</svg>\n"
    )


_VIEW = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
_LINK = re.compile(r"</?a\b[^>]*>")
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_DRAWN = re.compile(
    r"\.(forest|likert|whisker|point|reference|overall|overall-mean|chance|gap-point|arrow|rule|grid)\b(?!-)"
)
_VARIABLE = re.compile(r"var\((--[\w-]+)\)")


def _size(drawing: str) -> tuple[float, float]:
    view = _VIEW.search(drawing)
    assert view is not None
    return float(view[1]), float(view[2])


def _text(y: float, text: str, kind: str) -> Markup:
    return Markup('<text class="figure-{}" x="0" y="{}">{}</text>').format(kind, y, text)


@cache
def _style() -> str:
    """The page's rules for drawings. Programs that make PDF of SVG know no variables, so their values are put in."""
    sheet = files("stillme.report").joinpath("page", "style.css").read_text("utf-8")
    root = _RULE.search(sheet)
    assert root is not None
    values = dict(re.findall(r"(--[\w-]+):\s*([^;]+);", root[2]))
    sheet = re.sub(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", sheet)
    rules = [
        ".figure-title { font: 600 14px sans-serif; }",
        ".figure-head { font: 12px sans-serif; }",
        ".figure-note { font: 10px sans-serif; }",
    ]
    for selectors, body in _RULE.findall(sheet):
        # Its size on the page is the window's.
        if not _DRAWN.search(selectors) or selectors.strip() == "svg.forest":
            continue
        for ink in range(6) if "--tone" in body else (None,):
            toned = values | ({} if ink is None else {"--tone": values[f"--ink-{ink}"]})
            prefix = "" if ink is None else f".ink-{ink} "
            named = ", ".join(prefix + selector.strip() for selector in selectors.split(","))
            rules.append(f"{named} {{{_VARIABLE.sub(lambda found, toned=toned: toned[found[1]], body)}}}")
    return re.sub(r"\s+", " ", " ".join(rules))
