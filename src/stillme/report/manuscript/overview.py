"""Figure 3: what was done, from portraits to scores, with the counts of this run."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from stillme.estimates import EditState, RatingState
from stillme.report import gallery
from stillme.report.data import ReportData
from stillme.report.manuscript.drawing import COLOURS, GREY, new_figure, show

_SHOWN = 3
_LONGEST = 26


def draw(data: ReportData) -> Any | str:
    """Five boxes from left to right, with a few sources and edits below where pictures may be shown."""
    edits = data.edits
    if not len(edits):
        return "nothing was asked yet"
    boxes = [_portraits(data), _instructions(data), _editors(data), _edits(data), _judges(data)]
    pictures = data.redact != "omit"
    words = 0.4 + 0.16 * max(len(lines) for _, lines in boxes)
    figure = new_figure(9.0, words + 1.5 * pictures, data)
    grid: Any = figure.add_gridspec(1 + pictures, 2 * _SHOWN, height_ratios=[words, 1.5] if pictures else [1])
    axes: Any = figure.add_subplot(grid[0, :])
    axes.set(xlim=(0, len(boxes)), ylim=(0, 1))
    axes.axis("off")
    for place, (title, lines) in enumerate(boxes):
        text = "\n".join(_short(line) for line in lines)
        axes.text(place + 0.5, 1.0, title, ha="center", va="top", fontsize=9, weight="bold", color=COLOURS[0])
        axes.text(place + 0.5, 1.0 - 0.3 / words, text, ha="center", va="top", fontsize=6.5, linespacing=1.5)
        if place:
            y = 1.0 - 0.07 / words
            axes.annotate("", (place + 0.06, y), (place - 0.06, y), arrowprops={"arrowstyle": "->", "color": GREY})
    if pictures:
        _examples(figure, grid, data)
    return figure


def _portraits(data: ReportData) -> tuple[str, list[str]]:
    second = data.edits.second
    used = data.edits.portrait if second is None else np.union1d(data.edits.portrait, second[second >= 0])
    levels = [(factor, len(data.edits.levels(factor)[0])) for factor in data.settings.factors]
    lines = [f"{factor.replace('_', ' ')}: {count} groups" for factor, count in levels]
    return _counted(len(np.unique(used)), "portrait"), lines


def _instructions(data: ReportData) -> tuple[str, list[str]]:
    codes: list[int] = np.unique(data.edits.prompt).tolist()
    prompts = [data.edits.prompts[code] for code in codes]
    by_category = Counter(prompt.category or "other" for prompt in prompts)
    return _counted(len(prompts), "instruction"), [f"{category}: {count}" for category, count in by_category.items()]


def _editors(data: ReportData) -> tuple[str, list[str]]:
    arms = [f"arm: {arm}" for arm in data.edits.arms]
    return _counted(len(data.edits.editors), "editor"), [*data.edits.editors, *arms]


def _edits(data: ReportData) -> tuple[str, list[str]]:
    codes: list[int] = data.edits.state.tolist()
    states = Counter(codes)
    lines = [
        f"{states[state]:,} {state.name.lower()}"
        for state in (EditState.REFUSED, EditState.FAILED, EditState.WITHHELD, EditState.MISSING)
        if states[state]
    ]
    return f"{states[EditState.EDITED]:,} edits", [f"of {len(data.edits):,} requests", *lines]


def _judges(data: ReportData) -> tuple[str, list[str]]:
    rated: Counter[str] = Counter()
    for score in data.scores:
        if score.kind != "ensemble":
            rated[score.judge] += int(np.count_nonzero(score.state == RatingState.RATED))
    lines = [f"{judge}: {count:,}" for judge, count in rated.items()]
    return f"{_counted(len(rated), 'judge')}, scores", lines


def _examples(figure: Any, grid: Any, data: ReportData) -> None:
    """Sources with one edit each, of different people."""
    seen: dict[int, int] = {}
    for row in np.flatnonzero(data.edits.state == EditState.EDITED).tolist():
        if gallery.path_of(data, row) is not None:
            seen.setdefault(int(data.edits.portrait[row]), row)
    rows = list(seen.values())
    for place, row in enumerate(rows[:: max(1, len(rows) // _SHOWN)][:_SHOWN]):
        portrait = data.edits.portraits[int(data.edits.portrait[row])]
        prompt = data.edits.prompts[int(data.edits.prompt[row])]
        show(figure.add_subplot(grid[1, 2 * place]), gallery.source_of(data, portrait), data, head="source")
        show(figure.add_subplot(grid[1, 2 * place + 1]), gallery.path_of(data, row), data, head=prompt.id)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _short(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
