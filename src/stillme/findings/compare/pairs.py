"""The edits that became worst, as pictures: source, first editor, second editor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stillme.core.rubric import axis_of
from stillme.estimates import numbers
from stillme.estimates.rows import Scores
from stillme.findings.compare.changes import Change, Comparison
from stillme.findings.compare.direction import Worse, unchanged_value, worse_when
from stillme.findings.compare.matching import Matched
from stillme.runs.thumbnails import data_uri

PAIRS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One request, before and after."""

    portrait: str
    prompt: str
    title: str
    before: str
    after: str
    pictures: tuple[Path | None, Path | None, Path | None]
    """Source, first editor's edit, second editor's edit."""


def worst_pairs(
    matched: Matched, comparison: Comparison, find_picture: Callable[[str], Path | None], count: int = PAIRS
) -> list[Pair]:
    """For each change for the worse, the requests that lost most; without one, those of every headline change."""
    changes = comparison.with_verdict("worse") or [change for change in comparison.changes if change.is_headline]
    queues = [(change, _losses(matched, change)) for change in changes]
    pairs: dict[int, Pair] = {}
    # In turns, so that one failure does not hide the others.
    while queues and len(pairs) < count:
        for change, rows in list(queues):
            row = next((row for row in rows if row not in pairs), None)
            if row is None:
                queues.remove((change, rows))
            elif len(pairs) < count:
                pairs[row] = _pair(matched, change, row, find_picture)
    return list(pairs.values())


def as_html(pairs: Sequence[Pair], labels: tuple[str, str]) -> str:
    """The pairs as HTML with the pictures inside; empty where no picture can be shown."""
    figures = [figure for pair in pairs if (figure := _figure(pair, labels))]
    return f'<h2>Edits that became worst</h2>\n<div class="pairs">\n{"".join(figures)}</div>\n' if figures else ""


def _figure(pair: Pair, labels: tuple[str, str]) -> str:
    pictures = [data_uri(path, "none") for path in pair.pictures]
    if not all(pictures):
        return ""
    names = ("source", *labels)
    images = "".join(
        f'<span><img src="{uri}" alt="{escape(name)}: portrait {escape(pair.portrait)}">{escape(name)}</span>'
        for uri, name in zip(pictures, names, strict=True)
    )
    text = f"{pair.title}: {pair.before} → {pair.after}. {pair.portrait}: {pair.prompt}"
    return f"<figure><div>{images}</div><figcaption>{escape(text)}</figcaption></figure>\n"


def _losses(matched: Matched, change: Change) -> Iterator[int]:
    """The rows of the first editor that lost most on the change's axis, in its group; none where nothing was lost."""
    score = _score(matched, change)
    if score is None:
        return
    edits = matched.edits
    size = len(edits) // 2
    loss = _loss(score.axis, score.value[:size], score.value[size:])
    rows = (edits.editor[:size] == edits.editors.index(change.arm)) & edits.counting(score.axis)[:size]
    if change.factor:
        levels, codes = edits.levels(change.factor)
        rows = rows & (codes[edits.portrait[:size]] == levels.index(change.group))
    with np.errstate(invalid="ignore"):
        lost = np.flatnonzero(rows & (loss > 0))
    yield from lost[np.argsort(-loss[lost], kind="stable")].tolist()


def _score(matched: Matched, change: Change) -> Scores | None:
    axis = axis_of(change.quantity)
    return next((score for score in matched.scores if (score.judge, score.axis) == (change.judge, axis)), None)


def _loss(axis: str, before: NDArray[np.float64], after: NDArray[np.float64]) -> NDArray[np.float64]:
    # No visible change is worse, though the axis has no mean: the edit may not have been made.
    worse = Worse.LOWER if axis == "visible_change" else worse_when(axis)
    match worse:
        case Worse.LOWER:
            return before - after
        case Worse.AWAY:
            middle = unchanged_value(axis)
            return np.abs(after - middle) - np.abs(before - middle)
        case Worse.HIGHER | Worse.UNKNOWN:
            return after - before


def _answer(score: Scores, row: int) -> str:
    value = float(score.value[row])
    return f"{value:g}" if value.is_integer() else numbers.number(score.axis, value, plus=numbers.is_signed(score.axis))


def _pair(matched: Matched, change: Change, row: int, find_picture: Callable[[str], Path | None]) -> Pair:
    edits = matched.edits
    score = _score(matched, change)
    assert score is not None
    portrait = edits.portraits[int(edits.portrait[row])]
    other = row + len(edits) // 2
    first, second = (find_picture(edits.image[place]) if edits.image[place] else None for place in (row, other))
    return Pair(
        portrait=portrait.id,
        prompt=edits.prompts[int(edits.prompt[row])].text,
        title=numbers.title(score.axis),
        before=_answer(score, row),
        after=_answer(score, other),
        pictures=(find_picture(portrait.image.sha256) or portrait.image.path, first, second),
    )
