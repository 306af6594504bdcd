"""Figures 5, 12 and 13: before and after, the mosaic, and one instruction for every group."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from stillme.estimates import EditState, RatingState, Scores
from stillme.report import album, gallery, numbers
from stillme.report.data import ReportData
from stillme.report.manuscript.marks import new_figure
from stillme.types import Arm

_WIDTH = 320
_ROWS = 7
_LEFT_OUT = "pictures are left out"

Pixels = NDArray[np.uint8]


def before_and_after(data: ReportData) -> Any | str:
    """Source, baseline, other arm: for each group the edit that the arm mends most."""
    if data.redact == "omit":
        return _LEFT_OUT
    arms = [arm for arm in data.edits.arms if arm not in (Arm.BASELINE, Arm.NOOP)]
    score = next(
        (each for each in data.headline_scores if each.axis in ("race_change", "skin_tone", "skin_delta_l")), None
    )
    if Arm.BASELINE not in data.edits.arms or not arms or score is None or not data.settings.factors:
        return "no second arm was run on the same edits"
    rows = _mended(data, score, arms[0])[:_ROWS]
    if not rows:
        return "no edit was rated under both arms"
    figure = new_figure(1.25 * len(rows), 4.0, data)
    for column, (group, before, after) in enumerate(rows):
        person = data.edits.portraits[int(data.edits.portrait[before])]
        shown = [person.image.path, _path(data, before), _path(data, after)]
        for line, (path, label) in enumerate(zip(shown, ("source", "baseline", arms[0]), strict=True)):
            axes: Any = figure.add_subplot(3, len(rows), line * len(rows) + column + 1)
            _show(axes, path, data, group if line == 0 else "", label if column == 0 else "")
    return figure


def mosaic(data: ReportData) -> Any | str:
    """Hundreds of edits, drawn at random, edge to edge."""
    if data.redact == "omit":
        return _LEFT_OUT
    rows = gallery.sample(data)
    paths = [path for row in rows if (path := _path(data, row))]
    if not paths:
        return "there are too few edits for a mosaic"
    sheet = album.mosaic(paths, data.redact)
    pixels = _decoded(album.from_uri(sheet))
    figure = new_figure(7.0, 7.0 * pixels.shape[0] / pixels.shape[1], data)
    axes: Any = figure.add_subplot(1, 1, 1)
    axes.imshow(pixels)
    axes.axis("off")
    return figure


def grid(data: ReportData) -> Any | str:
    """Instructions down, groups across, by the first editor."""
    if data.redact == "omit":
        return _LEFT_OUT
    crossing = gallery.crossing(data)
    if crossing is None or not crossing.rows:
        return "no person of each group is alike in the other labels"
    (editor, arm), lines = next(iter(crossing.rows.items()))
    down, across = len(crossing.prompts) + 1, len(crossing.levels)
    figure = new_figure(1.05 * across, 1.12 * down + 0.2, data)
    for column, (level, portrait) in enumerate(zip(crossing.levels, crossing.portraits, strict=True)):
        axes: Any = figure.add_subplot(down, across, column + 1)
        _show(axes, data.edits.portraits[portrait].image.path, data, level, "source" if column == 0 else "")
        for line, (prompt, rows) in enumerate(zip(crossing.prompts, lines, strict=True), start=1):
            axes = figure.add_subplot(down, across, line * across + column + 1)
            path = _path(data, rows[column]) if rows[column] >= 0 else None
            _show(axes, path, data, "", data.edits.prompts[prompt].id if column == 0 else "")
    figure.suptitle(f"{data.edits.editors[editor]}, {data.edits.arms[arm]}", fontsize=9)
    return figure


def _mended(data: ReportData, score: Scores, arm: str) -> list[tuple[str, int, int]]:
    """Per group: the pair of rows between which the person comes back the most."""
    edits = data.edits
    factor = data.settings.factors[0]
    levels, codes = edits.levels(factor)
    rated = (score.state == RatingState.RATED) & (edits.state == EditState.EDITED)
    away = np.zeros(len(edits))
    away[rated] = gallery.distance(score.axis, score.value[rated])
    plain, other = edits.arms.index(Arm.BASELINE), edits.arms.index(arm)
    mates = gallery.arm_mates(data)
    best: dict[str, tuple[float, int, int]] = {}
    for row in np.flatnonzero(rated & (edits.arm == plain) & (codes[edits.portrait] >= 0)).tolist():
        level = levels[int(codes[int(edits.portrait[row])])]
        for mate in mates(row):
            gain = float(away[row] - away[mate])
            if edits.arm[mate] == other and rated[mate] and (level not in best or gain > best[level][0]):
                best[level] = gain, row, mate
    return [(level, row, mate) for level, (_, row, mate) in sorted(best.items())]


def _path(data: ReportData, row: int) -> Path | None:
    return data.image_path(data.edits.image[row]) if data.edits.image[row] else None


def _show(axes: Any, path: Path | None, data: ReportData, head: str, label: str) -> None:
    small = album.encode(path, data.redact, _WIDTH) if path is not None else b""
    if small:
        axes.imshow(_decoded(small), interpolation="bicubic")
    else:
        axes.text(0.5, 0.5, "not found", ha="center", va="center", transform=axes.transAxes)
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_title(numbers.factor(head), fontsize=7)
    axes.set_ylabel(label, fontsize=7)


def _decoded(data: bytes) -> Pixels:
    with Image.open(io.BytesIO(data)) as picture:
        return np.asarray(picture.convert("RGB"))
