"""Which edits are worst, and which are shown side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stillme.core import rubric
from stillme.core.errors import UnknownName
from stillme.core.types import Arm, Portrait, digest
from stillme.estimates import EditState, RatingState, Scores, headlines, mark
from stillme.estimates.headlines import smallest_effect
from stillme.estimates.quantities import meets
from stillme.report.data import ReportData
from stillme.runs import thumbnails

MOSAIC = 480
"""Tiles of the mosaic, as in the paper's Figure 12."""

_FEWEST_TILES = 48
_PROMPTS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A source and its edit, inside the page itself."""

    row: int
    source: str
    """A data URI, empty where the picture may not or cannot be shown."""
    edited: str
    portrait: str
    editor: str
    prompt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """One portrait of each group, matched in all other labels, under the same instructions (the paper's Figure 13)."""

    factor: str
    levels: tuple[str, ...]
    portraits: tuple[int, ...]
    shared: tuple[tuple[str, str], ...]
    """The labels that they have in common."""
    prompts: tuple[int, ...]
    rows: Mapping[tuple[int, int], tuple[tuple[int, ...], ...]]
    """By editor and arm: for each prompt and level the row, -1 where there is none."""


def worst(
    data: ReportData, count: int, *, axis: str = "", among: NDArray[np.bool_] | None = None
) -> list[tuple[int, Scores]]:
    """The worst edits with their fault: in turns by editor and axis, so that one fault does not hide the others.

    Of one axis, and among some rows only, where that is asked for.
    """
    edits = data.edits
    rank = _key_rank(data)
    queues: list[Iterator[tuple[int, Scores]]] = []
    for score, badness in _badness(data):
        if axis and score.axis != axis:
            continue
        faulty = badness > 0 if among is None else among & (badness > 0)
        for code in range(len(edits.editors)):
            rows = np.flatnonzero((edits.editor == code) & faulty)
            ranked = rows[np.lexsort((rank[rows], -badness[rows]))][:count]
            queues.append(iter([(int(row), score) for row in ranked]))
    chosen: dict[int, Scores] = {}
    while queues and len(chosen) < count:
        for queue in list(queues):
            row, score = next((fault for fault in queue if fault[0] not in chosen), (None, None))
            if row is None or score is None:
                queues.remove(queue)
            elif len(chosen) < count:
                chosen[row] = score
    return list(chosen.items())


def rows_of_group(data: ReportData, factor: str, group: str) -> NDArray[np.bool_]:
    """The rows of portraits with this label."""
    levels, codes = data.edits.levels(factor)
    if not levels:
        raise UnknownName.among(
            "factor", factor, data.settings.factors, f"This run has {', '.join(data.settings.factors)}."
        )
    if group not in levels:
        raise UnknownName.among(factor, group, levels, f"Its groups are {', '.join(levels)}.")
    return codes[data.edits.portrait] == levels.index(group)


def hero(data: ReportData, ranked: Sequence[tuple[int, Scores]]) -> list[Picture]:
    """Four different people for the top of the page; none rather than fewer."""
    people: dict[int, Picture] = {}
    for row, score in ranked[:200]:
        # An edit that was not made looks like its source.
        if score.axis in headlines.EDIT_MADE_AXES or int(data.edits.portrait[row]) in people:
            continue
        pair = picture(data, row)
        if pair.source and pair.edited:
            people[int(data.edits.portrait[row])] = pair
        if len(people) == 4:
            return list(people.values())
    return []


def picture(data: ReportData, row: int) -> Picture:
    """One row's source, edit and instruction."""
    edits = data.edits
    portrait = edits.portraits[int(edits.portrait[row])]
    return Picture(
        row=row,
        source=thumbnails.data_uri(source_of(data, portrait), data.redact),
        edited=thumbnails.data_uri(path_of(data, row), data.redact),
        portrait=portrait.id,
        editor=edits.editors[int(edits.editor[row])],
        prompt=edits.prompts[int(edits.prompt[row])].text,
    )


def source_of(data: ReportData, portrait: Portrait) -> Path:
    """The file of a portrait."""
    path = portrait.image.path
    return path if path.exists() else data.image_path(portrait.image.sha256) or path


def path_of(data: ReportData, row: int) -> Path | None:
    """The file of a row's edited picture."""
    return data.image_path(data.edits.image[row]) if data.edits.image[row] else None


def side_by_side(data: ReportData) -> SideBySide | None:
    """One portrait per group of the first factor that has groups; None where no portraits match."""
    edits = data.edits
    for factor in data.settings.factors:
        levels, _ = edits.levels(factor)
        matched = _matched(data, factor) if len(levels) > 1 else None
        if matched is None:
            continue
        shared, portraits = matched
        rows = _rows_of(data, [portraits[level] for level in levels])
        prompts = _prompts(data, rows)
        return SideBySide(
            factor=factor,
            levels=levels,
            portraits=tuple(portraits[level] for level in levels),
            shared=shared,
            prompts=prompts,
            rows={
                (editor, arm): tuple(
                    tuple(rows.get((editor, arm, portraits[level], prompt), -1) for level in levels)
                    for prompt in prompts
                )
                for editor, arm in sorted({(editor, arm) for editor, arm, _, _ in rows})
                if edits.arms[arm] != Arm.NOOP
            },
        )
    return None


def mosaic_rows(data: ReportData) -> list[int]:
    """Rows for the mosaic, drawn by hash so that the same rows give the same mosaic."""
    edits = data.edits
    edited = np.flatnonzero((edits.state == EditState.EDITED) & (edits.arm == edits.arms.index(data.main_arm)))
    drawn = sorted((row for row in edited.tolist() if edits.image[row]), key=lambda row: digest(edits.keys[row]))
    return drawn[:MOSAIC] if len(drawn) >= _FEWEST_TILES else []


def rows_of_request(data: ReportData) -> Callable[[int], Sequence[int]]:
    """From a row to the rows of the same request under every arm, seed by seed, itself included."""
    edits = data.edits
    seen: Counter[tuple[int, ...]] = Counter()
    requests: dict[tuple[int, ...], list[int]] = {}
    keys: list[tuple[int, ...]] = []
    columns = (edits.portrait, edits.prompt, edits.editor, edits.arm)
    for row, cell in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        keys.append((*cell[:3], seen[cell]))
        seen[cell] += 1
        requests.setdefault(keys[-1], []).append(row)
    return lambda row: requests[keys[row]]


def with_arms(data: ReportData, rows: Sequence[int]) -> list[int]:
    """Each row followed by the same request under the other arms."""
    if len(data.edits.arms) < 2:
        return list(rows)
    same_request = rows_of_request(data)
    return list(dict.fromkeys(other for row in rows for other in (row, *same_request(row))))


def label_origins(data: ReportData) -> Mapping[str, int]:
    """Where the labels come from, for how many portraits."""
    return Counter(portrait.label_origin for portrait in data.edits.portraits)


def _matched(data: ReportData, factor: str) -> tuple[tuple[tuple[str, str], ...], dict[str, int]] | None:
    """A portrait for every level, with as many other labels in common as possible."""
    levels, codes = data.edits.levels(factor)
    others = [name for name in data.settings.factors if name != factor]
    labelled = sorted(np.flatnonzero(codes >= 0).tolist(), key=lambda index: data.edits.portraits[index].id)
    # With fewer and fewer labels in common, until every level has a portrait.
    for kept in range(len(others), -1, -1):
        cells: dict[tuple[str, ...], dict[str, int]] = {}
        for index in labelled:
            attributes = data.edits.portraits[index].attributes
            labels = tuple(attributes.get(name, "") for name in others[:kept])
            cells.setdefault(labels, {}).setdefault(levels[int(codes[index])], index)
        for labels in sorted(cells):
            if len(cells[labels]) == len(levels):
                return tuple(zip(others[:kept], labels, strict=True)), cells[labels]
    return None


def _rows_of(data: ReportData, portraits: Sequence[int]) -> dict[tuple[int, int, int, int], int]:
    """The first edited row by editor, arm, portrait and prompt."""
    edits = data.edits
    rows: dict[tuple[int, int, int, int], int] = {}
    for row in np.flatnonzero(np.isin(edits.portrait, portraits) & (edits.state == EditState.EDITED)).tolist():
        key = int(edits.editor[row]), int(edits.arm[row]), int(edits.portrait[row]), int(edits.prompt[row])
        rows.setdefault(key, row)
    return rows


def _prompts(data: ReportData, rows: Mapping[tuple[int, int, int, int], int]) -> tuple[int, ...]:
    """Up to six instructions, spread over the set."""
    prompts = sorted({prompt for *_, prompt in rows if data.edits.prompts[prompt].category != "noop"})
    count = min(_PROMPTS, len(prompts))
    return tuple(prompts[index * len(prompts) // count] for index in range(count))


def _key_rank(data: ReportData) -> NDArray[np.intp]:
    keys = np.asarray(data.edits.keys, dtype=np.str_)
    rank = np.empty(len(keys), dtype=np.intp)
    rank[np.argsort(keys, kind="stable")] = np.arange(len(keys))
    return rank


def _badness(data: ReportData) -> Iterator[tuple[Scores, NDArray[np.float64]]]:
    """The distance of each edit from what it should be, from 0 to 1, per judge and axis."""
    scores = [score for score in data.headline_scores if headlines.is_headline_axis(score.axis)]
    # An axis on which the judge failed calibration ranks no one, unless there is no other.
    sound = [s for s in scores if not headlines.is_unfit(mark(data.standing, s.judge, s.axis))]
    for score in sound or scores:
        rated = (score.state == RatingState.RATED) & (data.edits.state == EditState.EDITED)
        badness = np.zeros(len(data.edits))
        badness[rated] = distance(score.axis, score.value[rated], data.settings.smallest_effects)
        yield score, badness


def distance(
    name: str, values: NDArray[np.float64], smallest_effects: Mapping[str, float] | None = None
) -> NDArray[np.float64]:
    """From 0, as it should be, to 1; what is below the smallest effect that matters is as it should be."""
    axis = rubric.load().axes.get(name)
    if name == "visible_change":
        # Here too little change is the fault: an edit was asked for and not made.
        return meets(rubric.load().rates["unchanged"], values)
    if axis is None or axis.unchanged is None:
        return (5 - values) / 4
    away = np.abs(values - axis.unchanged)
    if axis.is_scale:
        return away / max(5 - axis.unchanged, axis.unchanged - 1)
    away = np.where(away < (smallest_effect(name, smallest_effects or {}) or 0.0), 0.0, away)
    # A quantity in its own unit has no worst value; the largest one in the data replaces it.
    largest = away.max(initial=0.0)
    return away / largest if largest > 0 else away
