"""Grids of pictures for a manuscript, as PNG: the worst edits, before and after, the mosaic, every group."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from stillme.core import images, rubric
from stillme.core.types import Arm
from stillme.estimates import EditState, RatingState, Scores, numbers
from stillme.estimates.headlines import EDIT_MADE_AXES
from stillme.report import gallery
from stillme.report.data import ReportData
from stillme.runs import thumbnails

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
