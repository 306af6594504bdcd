"""Which edits are worst, and which stand side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stillme import rubric
from stillme.estimates import EditState, RatingState, Scores
from stillme.estimates.cuts import rate_of
from stillme.report import album, numbers
from stillme.report.data import ReportData
from stillme.types import Arm, digest

MOSAIC = 480
"""Tiles of the mosaic, as in the paper's Figure 12."""

_FEWEST_TILES = 48
_GRID_PROMPTS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One pair that stands in the page itself."""

    row: int
    source: str
    """A data URI, empty where the picture may not or cannot be shown."""
    edited: str
    portrait: str
    editor: str
    prompt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """One person of each group, alike in all other labels, under the same instructions (the paper's Figure 13)."""

    factor: str
    levels: tuple[str, ...]
    portraits: tuple[int, ...]
    alike: tuple[tuple[str, str], ...]
    """The labels that they share."""
    prompts: tuple[int, ...]
    rows: Mapping[tuple[int, int], tuple[tuple[int, ...], ...]]
    """By editor and arm: for each prompt and level the row, -1 where there is none."""


def worst(data: ReportData, count: int) -> list[tuple[int, Scores]]:
    """The worst edits with their fault: in turns by editor and axis, so that one fault does not hide the others."""
    edits = data.edits
    rank = _key_rank(data)
    queues: list[Iterator[tuple[int, Scores]]] = []
    for score, badness in _badness(data):
        for code in range(len(edits.editors)):
            rows = np.flatnonzero((edits.editor == code) & (badness > 0))
            first = rows[np.lexsort((rank[rows], -badness[rows]))][:count]
            queues.append(iter([(int(row), score) for row in first]))
    chosen: dict[int, Scores] = {}
    while queues and len(chosen) < count:
        for queue in list(queues):
            found = next((each for each in queue if each[0] not in chosen), None)
            if found is None:
                queues.remove(queue)
            elif len(chosen) < count:
                chosen[found[0]] = found[1]
    return list(chosen.items())


def example(data: ReportData, *, editor: str, arm: str, axis: str, factor: str, group: str) -> Picture | None:
    """The worst edit of one group on one axis, to stand beside its number."""
    edits = data.edits
    levels, codes = edits.levels(factor)
    if group not in levels:
        return None
    here = (edits.editor == edits.editors.index(editor)) & (edits.arm == edits.arms.index(arm))
    here &= codes[edits.portrait] == levels.index(group)
    rank = _key_rank(data)
    for score, badness in _badness(data):
        rows = np.flatnonzero(here & (badness > 0))
        if score.axis == axis and len(rows):
            return picture(data, int(rows[np.lexsort((rank[rows], -badness[rows]))][0]))
    return None


def hero(data: ReportData, ranked: Sequence[tuple[int, Scores]]) -> list[Picture]:
    """Four different people for the top of the page; none rather than a gap in the row."""
    people: dict[int, Picture] = {}
    for row, score in ranked[:200]:
        # An edit that did not happen looks like its source.
        if score.axis in ("changed_area", "edit_success") or int(data.edits.portrait[row]) in people:
            continue
        shown = picture(data, row)
        if shown.source and shown.edited:
            people[int(data.edits.portrait[row])] = shown
        if len(people) == 4:
            return list(people.values())
    return []


def picture(data: ReportData, row: int) -> Picture:
    """One row's pictures and words."""
    edits = data.edits
    portrait = edits.portraits[int(edits.portrait[row])]
    edited = data.image_path(edits.image[row]) if edits.image[row] else None
    return Picture(
        row=row,
        source=album.uri(portrait.image.path, data.redact),
        edited=album.uri(edited, data.redact),
        portrait=portrait.id,
        editor=edits.editors[int(edits.editor[row])],
        prompt=edits.prompts[int(edits.prompt[row])].text,
    )


def crossing(data: ReportData) -> Crossing | None:
    """One portrait per group of the first factor that has groups; absent where nobody can be matched."""
    edits = data.edits
    for factor in data.settings.factors:
        levels, _ = edits.levels(factor)
        if len(levels) < 2:
            continue
        alike = _matched(data, factor)
        if not alike:
            continue
        labels, people = alike
        rows = _rows_of(data, [people[level] for level in levels])
        prompts = _prompts(data, rows)
        treatments = sorted({(editor, arm) for editor, arm, _, _ in rows})
        return Crossing(
            factor=factor,
            levels=levels,
            portraits=tuple(people[level] for level in levels),
            alike=labels,
            prompts=prompts,
            rows={
                (editor, arm): tuple(
                    tuple(rows.get((editor, arm, people[level], prompt), -1) for level in levels) for prompt in prompts
                )
                for editor, arm in treatments
                if edits.arms[arm] != Arm.NOOP
            },
        )
    return None


def sample(data: ReportData) -> list[int]:
    """Rows for the mosaic, drawn by hash so that the same rows give the same sheet."""
    edits = data.edits
    shown = np.flatnonzero((edits.state == EditState.EDITED) & (edits.arm == edits.arms.index(data.plain_arm)))
    drawn = sorted((row for row in shown.tolist() if edits.image[row]), key=lambda row: digest(edits.keys[row]))
    return drawn[:MOSAIC] if len(drawn) >= _FEWEST_TILES else []


def arm_mates(data: ReportData) -> Callable[[int], Sequence[int]]:
    """From a row to the rows of the same request under every arm, seed by seed, itself included."""
    edits = data.edits
    turns: dict[tuple[int, ...], int] = {}
    groups: dict[tuple[int, ...], list[int]] = {}
    keys: list[tuple[int, ...]] = []
    cells = np.stack([edits.portrait, edits.prompt, edits.editor, edits.arm], axis=1).tolist()
    for row, cell in enumerate(cells):
        turn = turns.get(tuple(cell), 0)
        turns[tuple(cell)] = turn + 1
        keys.append((*cell[:3], turn))
        groups.setdefault(keys[-1], []).append(row)
    return lambda row: groups[keys[row]]


def with_arms(data: ReportData, rows: Sequence[int]) -> list[int]:
    """Each row followed by the same request under the other arms."""
    if len(data.edits.arms) < 2:
        return list(rows)
    mates = arm_mates(data)
    return list(dict.fromkeys(other for row in rows for other in (row, *mates(row))))


def axis_of(quantity: str) -> str:
    """The axis a quantity is read from."""
    rate = rate_of(quantity)
    return rate.axis if rate else quantity


def label_origins(data: ReportData) -> Mapping[str, int]:
    """Who gave the labels, for how many portraits."""
    origins: dict[str, int] = {}
    for portrait in data.edits.portraits:
        origins[portrait.label_origin] = origins.get(portrait.label_origin, 0) + 1
    return origins


def _matched(data: ReportData, factor: str) -> tuple[tuple[tuple[str, str], ...], dict[str, int]] | None:
    """For every level somebody, alike in the other factors as far as anybody is."""
    levels, codes = data.edits.levels(factor)
    others = [name for name in data.settings.factors if name != factor]
    # With fewer and fewer labels in common, until every level has somebody.
    for kept in range(len(others), -1, -1):
        groups: dict[tuple[str, ...], dict[str, int]] = {}
        for place in sorted(range(len(codes)), key=lambda place: data.edits.portraits[place].id):
            if codes[place] >= 0:
                portrait = data.edits.portraits[place]
                shared = tuple(portrait.attributes.get(name, "") for name in others[:kept])
                groups.setdefault(shared, {}).setdefault(levels[int(codes[place])], place)
        for shared in sorted(groups):
            if len(groups[shared]) == len(levels):
                return tuple(zip(others[:kept], shared, strict=True)), groups[shared]
    return None


def _rows_of(data: ReportData, people: Sequence[int]) -> dict[tuple[int, int, int, int], int]:
    edits = data.edits
    mine = np.flatnonzero(np.isin(edits.portrait, people) & (edits.state == EditState.EDITED))
    rows: dict[tuple[int, int, int, int], int] = {}
    for row in mine.tolist():
        key = int(edits.editor[row]), int(edits.arm[row]), int(edits.portrait[row]), int(edits.prompt[row])
        rows.setdefault(key, row)
    return rows


def _prompts(data: ReportData, rows: Mapping[tuple[int, int, int, int], int]) -> tuple[int, ...]:
    """Up to six instructions, spread over the set."""
    asked = sorted({prompt for *_, prompt in rows if data.edits.prompts[prompt].category != "noop"})
    count = min(_GRID_PROMPTS, len(asked))
    return tuple(asked[place * len(asked) // count] for place in range(count))


def _key_rank(data: ReportData) -> NDArray[np.intp]:
    keys = np.asarray(data.edits.keys, dtype=np.str_)
    rank = np.empty(len(keys), dtype=np.intp)
    rank[np.argsort(keys, kind="stable")] = np.arange(len(keys))
    return rank


def _badness(data: ReportData) -> Iterator[tuple[Scores, NDArray[np.float64]]]:
    """How far each edit is from what it should be, from 0 to 1, per judge and axis."""
    for score in data.headline_scores:
        if not numbers.is_telling(score.axis):
            continue
        rated = (score.state == RatingState.RATED) & (data.edits.state == EditState.EDITED)
        badness = np.zeros(len(data.edits))
        badness[rated] = distance(score.axis, score.value[rated])
        yield score, badness


def distance(name: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """From 0, as it should be, to 1."""
    axis = rubric.load().axes.get(name)
    if name == "changed_area":
        # Here too little is the fault: the person asked for an edit and got none.
        cut = rubric.load().rates["unchanged"].at_most or 0.0
        return np.where(values <= cut, 1.0, 0.0)
    if axis is None or axis.unchanged is None:
        return (5 - values) / 4
    away = np.abs(values - axis.unchanged)
    if axis.is_scale:
        return away / max(5 - axis.unchanged, axis.unchanged - 1)
    # A quantity in its own unit has no worst value; the largest seen stands for it.
    largest = away.max(initial=0.0)
    return away / largest if largest > 0 else away
