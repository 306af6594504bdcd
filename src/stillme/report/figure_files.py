"""Figures for a manuscript: the page's own drawings as SVG, each with its style inside, and grids of pictures."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
from markupsafe import Markup
from PIL import Image, ImageDraw, ImageFont

from stillme.core import images, rubric
from stillme.core.files import write_whole
from stillme.core.types import Arm
from stillme.estimates import EditState, RatingState, Scores, numbers
from stillme.estimates.headlines import EDIT_MADE_AXES
from stillme.report import figures, gallery
from stillme.report.data import ReportData
from stillme.report.drawings import bar_figures, dumbbell_figures, role_figures
from stillme.report.findings import find
from stillme.report.into_what import into_what
from stillme.report.paper import paper_figures
from stillme.runs import thumbnails

_WIDTH = 470

Panel = tuple[str, str, Markup]
"""Editor, arm, drawing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFigures:
    """What was drawn, and what could not be."""

    files: tuple[Path, ...]
    skipped: tuple[tuple[str, str], ...]
    """Name and reason."""


def write_figures(folder: Path, data: ReportData) -> WrittenFigures:
    """Write every figure that the rows allow into `folder`; the same rows give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [
        write_whole(folder / f"{name}.svg", _page(data, title, panels)) for name, title, panels in _drawings(data)
    ]
    skipped: list[tuple[str, str]] = []
    for name, picture in grids(data):
        if isinstance(picture, str):
            skipped.append((name, picture))
        else:
            written.append(write_whole(folder / f"{name}.png", picture))
    return WrittenFigures(files=tuple(written), skipped=tuple(skipped))


def _drawings(data: ReportData) -> Iterator[tuple[str, str, Sequence[Panel]]]:
    """File name, title and panels of every drawing of the page."""
    for key, panels in figures.panels(data, find(data)).items():
        forest = figures.figure(key, panels, {})
        drawings = [(editor, arm, drawing) for editor, arm, drawing, _ in forest.panels]
        yield _named("forest", *key), f"{forest.title} by {forest.factor}{_by(forest.judge)}", drawings
    for figure in paper_figures(data):
        yield figure.name, figure.title, figure.panels
    for bars in bar_figures(data):
        yield _named("scores", bars.axis, bars.judge, bars.factor), f"{bars.title} by {bars.factor}", bars.panels
    for change in dumbbell_figures(data):
        panels = [(panel.editor, change.arm, panel.drawing) for panel in change.panels]
        name = _named("change", change.quantity, change.judge, change.factor, change.arm)
        yield name, f"{change.title} by {change.factor}, {change.arm} against {change.against}", panels
    if section := into_what(data):
        for judge, panels in section.flows:
            yield _named("into_what", judge), f"Apparent {section.words}, before and after{_by(judge)}", panels
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


LEFT_OUT = "pictures are left out"
_FAILURES = ("soft_erasure", "unchanged", "skin_lightened", "skin_darkened", "race_changed", "gender_changed")
_DRIFT = ("race_change", "skin_tone", "skin_delta_l")
_ACROSS, _RANKED = 8, 400
_TILE, _LINE, _MARGIN, _LEFT = 160, 16, 8, 90
"""Pixels of a picture, of a line of text, around them, and of the rows' names."""

Example = tuple[int, Scores]
"""A row and the scores by which it is bad."""


@dataclass(frozen=True, slots=True)
class _Tile:
    path: Path | None
    above: str = ""
    below: str = ""
    absent: str = "not found"


def grids(data: ReportData) -> Iterator[tuple[str, bytes | str]]:
    """Name, and the picture or why there is none."""
    for name, draw in (
        ("pictures-worst-edits", _worst),
        ("pictures-edits-not-made", _erased),
        ("pictures-before-and-after", _before_and_after),
        ("pictures-mosaic", _mosaic),
        ("pictures-every-group", _every_group),
    ):
        yield name, LEFT_OUT if data.redact == "omit" else draw(data)


def _worst(data: ReportData) -> bytes | str:
    """The paper's Figures 1 and 2: edits that changed the person, source above edit, of different people."""
    return _examples(data, [example for example in _failures(data) if example[1].axis not in EDIT_MADE_AXES])


def _erased(data: ReportData) -> bytes | str:
    """The paper's Figure 2: edits that were not made."""
    return _examples(data, [example for example in _failures(data) if example[1].axis in EDIT_MADE_AXES])


def _failures(data: ReportData) -> list[Example]:
    """The worst edits that count as failures. A measurement without such a limit cannot say that a person changed."""
    rates = [rubric.load().rates[name] for name in _FAILURES]
    return [
        (row, score)
        for row, score in gallery.worst(data, _RANKED)
        if any(rate.axis == score.axis and rate.holds(float(score.value[row])) for rate in rates)
    ]


def _examples(data: ReportData, ranked: Sequence[Example]) -> bytes | str:
    chosen: dict[int, Example] = {}
    for row, score in ranked:
        if gallery.path_of(data, row) is not None:
            chosen.setdefault(int(data.edits.portrait[row]), (row, score))
    pairs = [_pair(data, example) for example in list(chosen.values())[:_ACROSS]]
    if not pairs:
        return "no judge found such an edit"
    return _sheet(data, [("source", [source for source, _ in pairs]), ("edit", [edit for _, edit in pairs])])


def _pair(data: ReportData, example: Example) -> tuple[_Tile, _Tile]:
    """A source and its edit, with who it is, what was asked and what the judge says."""
    row, score = example
    edits = data.edits
    portrait = edits.portraits[int(edits.portrait[row])]
    group = portrait.attributes.get(data.settings.factors[0], "") if data.settings.factors else portrait.id
    value = f"{numbers.title(score.axis)} {numbers.number(score.axis, float(score.value[row]))}"
    prompt, editor = edits.prompts[int(edits.prompt[row])].id, edits.editors[int(edits.editor[row])]
    edited = _Tile(gallery.path_of(data, row), f"{prompt}, {editor}", value)
    return _Tile(gallery.source_of(data, portrait), group), edited


def _before_and_after(data: ReportData) -> bytes | str:
    """The paper's Figure 5: source, baseline, other arm; for each group the edit that the arm improves most."""
    arms = [arm for arm in data.edits.arms if arm not in (Arm.BASELINE, Arm.NOOP)]
    score = next((score for score in data.headline_scores if score.axis in _DRIFT), None)
    if Arm.BASELINE not in data.edits.arms or not arms or score is None or not data.settings.factors:
        return "no second arm was run on the same edits"
    improved = _most_improved(data, score, arms[0])[:_ACROSS]
    if not improved:
        return "no edit was rated under both arms"
    portraits = [data.edits.portraits[int(data.edits.portrait[before])] for _, before, _ in improved]
    groups = [group for group, _, _ in improved]
    sources = [_Tile(gallery.source_of(data, who), group) for who, group in zip(portraits, groups, strict=True)]
    before = [_Tile(gallery.path_of(data, row)) for _, row, _ in improved]
    after = [_Tile(gallery.path_of(data, row)) for _, _, row in improved]
    return _sheet(data, [("source", sources), ("baseline", before), (arms[0], after)])


def _most_improved(data: ReportData, score: Scores, arm: str) -> list[tuple[str, int, int]]:
    """Per group: the baseline row and the arm's row between which the person's drift shrinks the most."""
    edits = data.edits
    levels, codes = edits.levels(data.settings.factors[0])
    rated = (score.state == RatingState.RATED) & (edits.state == EditState.EDITED)
    drift = np.zeros(len(edits))
    drift[rated] = gallery.distance(score.axis, score.value[rated])
    baseline, treated = edits.arms.index(Arm.BASELINE), edits.arms.index(arm)
    same_request = gallery.rows_of_request(data)
    best: dict[str, tuple[float, int, int]] = {}
    for before in np.flatnonzero(rated & (edits.arm == baseline) & (codes[edits.portrait] >= 0)).tolist():
        level = levels[int(codes[int(edits.portrait[before])])]
        for after in same_request(before):
            gain = float(drift[before] - drift[after])
            if edits.arm[after] == treated and rated[after] and (level not in best or gain > best[level][0]):
                best[level] = gain, before, after
    return [(level, before, after) for level, (_, before, after) in sorted(best.items())]


def _mosaic(data: ReportData) -> bytes | str:
    """The paper's Figure 12: hundreds of edits, drawn at random, edge to edge."""
    hashes = [data.edits.image[row] for row in gallery.mosaic_rows(data)]
    encoded = thumbnails.mosaic(hashes, data.image_path, data.redact)
    if not encoded:
        return "there are too few edits for a mosaic"
    return _png(Image.fromarray(images.read_rgb(encoded)))


def _every_group(data: ReportData) -> bytes | str:
    """The paper's Figure 13: instructions down, groups across, by the first editor."""
    matched = gallery.side_by_side(data)
    if matched is None or not matched.rows:
        return "no portraits of all groups match in the other labels"
    by_prompt = next(iter(matched.rows.values()))
    made = [row >= 0 for rows in by_prompt for row in rows]
    if sum(made) < len(made) / 2:
        return "too few edits of matched portraits were asked for: the audit is a sample"
    sources = [
        _Tile(gallery.source_of(data, data.edits.portraits[portrait]), level)
        for level, portrait in zip(matched.levels, matched.portraits, strict=True)
    ]
    edited = [
        (
            data.edits.prompts[prompt].id,
            [_Tile(gallery.path_of(data, row)) if row >= 0 else _Tile(None, absent="not edited") for row in rows],
        )
        for prompt, rows in zip(matched.prompts, by_prompt, strict=True)
    ]
    return _sheet(data, [("source", sources), *edited])


def _sheet(data: ReportData, rows: Sequence[tuple[str, Sequence[_Tile]]]) -> bytes:
    """Rows of pictures with words above and below each, a name at the left, and what is made up at the foot."""
    step = _TILE + 2 * _LINE + _MARGIN
    across = max(len(tiles) for _, tiles in rows)
    size = (_LEFT + across * (_TILE + _MARGIN), len(rows) * step + _LINE * bool(data.disclosures) + _MARGIN)
    sheet = Image.new("RGB", size, "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(11)
    for down, (name, tiles) in enumerate(rows):
        top = down * step + _MARGIN
        pen.text((_MARGIN, top + _LINE + _TILE // 2), numbers.factor_name(name)[:14], "black", font)
        for column, tile in enumerate(tiles):
            x = _LEFT + column * (_TILE + _MARGIN)
            pen.text((x, top), tile.above[:28], "black", font)
            if picture := thumbnails.encode(tile.path, data.redact, _TILE) if tile.path else b"":
                shown = images.read_picture(picture).convert("RGB")
                sheet.paste(shown.resize(_fitted(shown)), (x, top + _LINE))
            else:
                pen.text((x + 40, top + _TILE // 2), tile.absent, "black", font)
            pen.text((x, top + _LINE + _TILE), tile.below[:28], "black", font)
    if data.disclosures:
        pen.text((_MARGIN, size[1] - _LINE), " · ".join(data.disclosures), "#a33a00", font)
    return _png(sheet)


def _fitted(picture: Image.Image) -> tuple[int, int]:
    """As large as a tile, without changing its shape."""
    scale = _TILE / max(picture.size)
    return round(picture.width * scale), round(picture.height * scale)


def _png(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
