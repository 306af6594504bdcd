"""Source beside edit, the worst first."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stillme import images, rubric
from stillme.errors import UnreadableImage
from stillme.estimates import EditState, RatingState, Scores
from stillme.report import numbers
from stillme.report.data import ReportData

THUMBNAIL = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One judge's answer, in words."""

    title: str
    value: str
    judge: str
    bad: bool
    """Whether this is what makes the edit one of the worst."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One pair in the gallery."""

    source: str
    """A data URI, empty where the picture could not be read."""
    edited: str
    editor: str
    arm: str
    portrait: str
    prompt: str
    prompt_id: str
    labels: tuple[tuple[str, str], ...]
    label_origin: str
    scores: tuple[Score, ...]
    shows: bool
    """Whether the fault can be seen: an edit that did not happen looks like its source."""


def pictures(data: ReportData, count: int) -> tuple[Picture, ...]:
    """The worst edits: in turns by editor and axis, so that one fault does not hide the others."""
    thumbnail = _thumbnails()
    return tuple(_picture(data, row, axis, thumbnail) for row, axis in _worst(data, count))


def example(data: ReportData, *, editor: str, arm: str, axis: str, factor: str, group: str) -> Picture | None:
    """The worst edit of one group on one axis, to stand beside its number."""
    edits = data.edits
    for score, badness in _badness(data):
        if score.axis != axis:
            continue
        rows = np.flatnonzero(
            (edits.editor == edits.editors.index(editor)) & (edits.arm == edits.arms.index(arm)) & (badness > 0)
        )
        mine = [
            row for row in _whole(rows) if edits.portraits[int(edits.portrait[row])].attributes.get(factor) == group
        ]
        if mine:
            worst = min(mine, key=lambda row: (-badness[row], edits.keys[row]))
            return _picture(data, worst, score, _thumbnails())
    return None


def axis_of(quantity: str) -> str:
    """The axis a quantity is read from."""
    rate = rubric.load().rates.get(quantity)
    return rate.axis if rate else quantity


def _worst(data: ReportData, count: int) -> list[tuple[int, Scores]]:
    edits = data.edits
    queues: list[Iterator[tuple[int, Scores]]] = []
    for score, badness in _badness(data):
        for code in range(len(edits.editors)):
            rows = _whole(np.flatnonzero((edits.editor == code) & (badness > 0)))
            rows.sort(key=lambda row: (-badness[row], edits.keys[row]))
            queues.append(iter([(row, score) for row in rows]))
    chosen: dict[int, Scores] = {}
    while queues and len(chosen) < count:
        for queue in list(queues):
            found = next((each for each in queue if each[0] not in chosen), None)
            if found is None:
                queues.remove(queue)
            elif len(chosen) < count:
                chosen[found[0]] = found[1]
    return list(chosen.items())


def _badness(data: ReportData) -> Iterator[tuple[Scores, NDArray[np.float64]]]:
    """How far each edit is from what it should be, from 0 to 1, per judge and axis."""
    for score in data.scores:
        if not numbers.is_headline(score.axis) and not _has_headline_rate(score.axis):
            continue
        rated = (score.state == RatingState.RATED) & (data.edits.state == EditState.EDITED)
        badness = np.zeros(len(data.edits))
        badness[rated] = _distance(score.axis, score.value[rated])
        yield score, badness


def _whole(rows: NDArray[np.intp]) -> list[int]:
    return [int(row) for row in rows]


def _has_headline_rate(axis: str) -> bool:
    return any(rate.axis == axis and numbers.is_headline(rate.name) for rate in rubric.load().rates.values())


def _distance(name: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
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


def _picture(data: ReportData, row: int, worst: Scores, thumbnail: Callable[[Path | None], str]) -> Picture:
    edits = data.edits
    portrait, prompt = edits.portraits[int(edits.portrait[row])], edits.prompts[int(edits.prompt[row])]
    labels = [(factor, portrait.attributes.get(factor, "no label")) for factor in data.settings.factors]
    return Picture(
        source=thumbnail(portrait.image.path),
        edited=thumbnail(data.image_path(edits.image[row]) if edits.image[row] else None),
        editor=edits.editors[int(edits.editor[row])],
        arm=edits.arms[int(edits.arm[row])],
        portrait=portrait.id,
        prompt=prompt.text,
        prompt_id=prompt.id,
        labels=tuple(labels),
        label_origin=portrait.label_origin,
        scores=tuple(_scores(data.scores, row, worst)),
        shows=worst.axis not in ("changed_area", "edit_success"),
    )


def _scores(scores: Sequence[Scores], row: int, worst: Scores) -> Iterator[Score]:
    for score in sorted(scores, key=lambda each: (each is not worst, numbers.headline_place(each.axis), each.judge)):
        if score.state[row] == RatingState.RATED:
            plus = numbers.signed(score.axis)
            value = f"{numbers.number(score.axis, float(score.value[row]), plus=plus)} {numbers.symbol(score.axis)}"
            yield Score(
                title=numbers.title(score.axis),
                value=_in_words(score.axis, float(score.value[row])) or value.strip(),
                judge=score.judge,
                bad=score is worst,
            )


def _in_words(name: str, value: float) -> str:
    """`4 · slightly lighter` for a whole score of a scale."""
    axis = rubric.load().axes.get(name)
    if name == "changed_area":
        return f"{100 * value:.1f} %"
    if axis is None or not axis.is_scale or value != int(value) or not 1 <= value <= 5:
        return ""
    return f"{int(value)} · {axis.short[int(value) - 1]}" if axis.short else ""


def _thumbnails() -> Callable[[Path | None], str]:
    @lru_cache(maxsize=256)
    def thumbnail(path: Path | None) -> str:
        if path is None:
            return ""
        try:
            small = images.encode_webp(images.read_rgb(path), width=THUMBNAIL, quality=70)
        except UnreadableImage:
            return ""
        return f"data:image/webp;base64,{base64.b64encode(small).decode('ascii')}"

    return thumbnail


def label_origins(data: ReportData) -> Mapping[str, int]:
    """Who gave the labels, for how many portraits."""
    origins: dict[str, int] = {}
    for portrait in data.edits.portraits:
        origins[portrait.label_origin] = origins.get(portrait.label_origin, 0) + 1
    return origins
