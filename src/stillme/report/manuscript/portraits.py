"""Figures 5, 12 and 13: before and after, the mosaic, and one instruction for every group."""

from __future__ import annotations

from typing import Any

import numpy as np

from stillme import images
from stillme.estimates import EditState, RatingState, Scores
from stillme.report import gallery, thumbnails
from stillme.report.data import ReportData
from stillme.report.manuscript.drawing import LEFT_OUT, new_figure, show
from stillme.types import Arm

_ROWS = 7
_AXES = ("race_change", "skin_tone", "skin_delta_l")


def before_and_after(data: ReportData) -> Any | str:
    """Source, baseline, other arm: for each group the edit that the arm improves most."""
    if data.redact == "omit":
        return LEFT_OUT
    arms = [arm for arm in data.edits.arms if arm not in (Arm.BASELINE, Arm.NOOP)]
    score = next((score for score in data.headline_scores if score.axis in _AXES), None)
    if Arm.BASELINE not in data.edits.arms or not arms or score is None or not data.settings.factors:
        return "no second arm was run on the same edits"
    rows = _most_improved(data, score, arms[0])[:_ROWS]
    if not rows:
        return "no edit was rated under both arms"
    figure = new_figure(1.25 * len(rows), 4.0, data)
    for column, (group, before, after) in enumerate(rows):
        portrait = data.edits.portraits[int(data.edits.portrait[before])]
        paths = [gallery.source_of(data, portrait), gallery.path_of(data, before), gallery.path_of(data, after)]
        for row, (path, label) in enumerate(zip(paths, ("source", "baseline", arms[0]), strict=True)):
            axes: Any = figure.add_subplot(3, len(rows), row * len(rows) + column + 1)
            show(axes, path, data, head=group if row == 0 else "", label=label if column == 0 else "")
    return figure


def mosaic(data: ReportData) -> Any | str:
    """Hundreds of edits, drawn at random, edge to edge."""
    if data.redact == "omit":
        return LEFT_OUT
    hashes = [data.edits.image[row] for row in gallery.mosaic_rows(data)]
    encoded = thumbnails.mosaic(hashes, data.image_path, data.redact)
    if not encoded:
        return "there are too few edits for a mosaic"
    pixels = images.read_rgb(encoded)
    figure = new_figure(7.0, 7.0 * pixels.shape[0] / pixels.shape[1], data)
    axes: Any = figure.add_subplot(1, 1, 1)
    axes.imshow(pixels)
    axes.axis("off")
    return figure


def grid(data: ReportData) -> Any | str:
    """Instructions down, groups across, by the first editor."""
    if data.redact == "omit":
        return LEFT_OUT
    matched = gallery.side_by_side(data)
    if matched is None or not matched.rows:
        return "no portraits of all groups match in the other labels"
    (editor, arm), by_prompt = next(iter(matched.rows.items()))
    made = [row >= 0 for rows in by_prompt for row in rows]
    if sum(made) < len(made) / 2:
        return "too few edits of matched portraits were asked for: the audit is a sample"
    down, across = len(matched.prompts) + 1, len(matched.levels)
    figure = new_figure(1.05 * across, 1.12 * down + 0.2, data)
    for column, (level, portrait) in enumerate(zip(matched.levels, matched.portraits, strict=True)):
        axes: Any = figure.add_subplot(down, across, column + 1)
        source = gallery.source_of(data, data.edits.portraits[portrait])
        show(axes, source, data, head=level, label="source" if column == 0 else "")
        for number, (prompt, rows) in enumerate(zip(matched.prompts, by_prompt, strict=True), start=1):
            axes = figure.add_subplot(down, across, number * across + column + 1)
            path = gallery.path_of(data, rows[column]) if rows[column] >= 0 else None
            absent = "not found" if rows[column] >= 0 else "not edited"
            show(axes, path, data, label=data.edits.prompts[prompt].id if column == 0 else "", absent=absent)
    figure.suptitle(f"{data.edits.editors[editor]}, {data.edits.arms[arm]}", fontsize=9)
    return figure


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
