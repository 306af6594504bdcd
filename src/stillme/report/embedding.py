"""The rows inside the page: columns as bytes, packed once, and the addresses that lead from a number to them."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
from numpy.typing import NDArray

from stillme.core import rubric
from stillme.core.rubric import Axis, rate_of
from stillme.core.types import Estimate, Interval, Json, Portrait
from stillme.estimates import Disparity, EditState, Scores, headlines, mark, numbers
from stillme.estimates.headlines import axis_of, place_of, smallest_effect
from stillme.estimates.quantities import EDIT_RATES
from stillme.report.data import ReportData
from stillme.report.gallery import SideBySide, source_of
from stillme.report.gaps import decisive_gaps
from stillme.runs.thumbnails import Thumbnails

_LONGEST_REMARK = 500
_REMARKS = 400_000
"""The most characters of evidence that a page carries."""

_DECLINED = 500
"""Refusals and failures whose messages a page carries."""

_SCOPES = ("all", "disparity", "group", "contrast")


def embed(
    data: ReportData, thumbnails: Thumbnails, worst: Sequence[int], mosaic: Sequence[int], grid: SideBySide | None
) -> str:
    """Everything that the page's script needs, as base64 of a packed block: a header as JSON, then columns.

    `worst` are rows in the order in which the gallery shows them.
    """
    columns = _Columns()
    edits = data.edits
    for name in ("editor", "arm", "prompt", "portrait", "state"):
        columns.add(name, getattr(edits, name))
    if edits.second is not None:
        # One more than the portrait's index, as 0 is no portrait.
        columns.add("second", edits.second + 1)
    columns.add("picture", np.array([_index(thumbnails, sha256) for sha256 in edits.image], dtype=np.int64))
    if data.happened is not None:
        columns.add("happened", data.happened.astype(np.uint8))
    files, file_index = _files(data)
    columns.add("file", file_index)
    for index, score in enumerate(data.scores):
        columns.add(f"score{index}", np.asarray(score.value, dtype=np.float32))
        columns.add(f"rating{index}", score.state)
    factors = list(data.settings.factors)
    adjusted = adjusted_p(data)
    header = {
        "rows": len(edits),
        "editors": edits.editors,
        "arms": edits.arms,
        "prompts": [[prompt.id, prompt.text] for prompt in edits.prompts],
        "portraits": [
            [
                portrait.id,
                _index(thumbnails, portrait.image.sha256),
                *(portrait.attributes.get(factor, "") for factor in factors),
            ]
            for portrait in edits.portraits
        ],
        "factors": factors,
        "keys": _short_keys(edits.keys),
        "files": files,
        "sources": [_source_file(data, portrait) for portrait in data.edits.portraits],
        "scores": [_score(data, score) for score in data.scores],
        "quantities": list(_quantities(data)),
        "estimates": [_estimate(estimate, adjusted) for estimate in sorted(data.estimates, key=table_order)],
        "remarks": _remarks(data, worst),
        "worst": list(worst),
        "mosaic": list(mosaic),
        "grid": _grid(grid),
        "redact": data.redact,
        "columns": columns.described,
    }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    size = len(text).to_bytes(4, "little")
    padding = b" " * (-len(text) % 8)
    packed = zlib.compress(size + bytes(4) + text + padding + columns.contents, 6)
    return base64.b64encode(packed).decode("ascii")


def table_order(estimate: Estimate) -> tuple[int, str, str, str, str, str, int, str]:
    """The order of the table of estimates: headline quantities first, editors side by side."""
    return (
        headlines.order_of(estimate.quantity),
        estimate.quantity,
        estimate.judge,
        estimate.factor,
        estimate.arm,
        estimate.editor,
        _SCOPES.index(estimate.scope) if estimate.scope in _SCOPES else len(_SCOPES),
        estimate.group,
    )


class _Columns:
    """Typed arrays end to end, each aligned to eight bytes."""

    def __init__(self) -> None:
        self.described: list[list[Json]] = []
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, name: str, values: NDArray[Any]) -> None:
        kind = "f4" if values.dtype.kind == "f" else _smallest(values)
        part = np.ascontiguousarray(values, dtype=f"<{kind}").tobytes()
        part += bytes(-len(part) % 8)
        self.described.append([name, kind, self._size])
        self._parts.append(part)
        self._size += len(part)

    @property
    def contents(self) -> bytes:
        return b"".join(self._parts)


def _smallest(values: NDArray[Any]) -> str:
    largest = int(values.max(initial=0))
    return "u1" if largest < 256 else "u2" if largest < 65536 else "u4"


def _index(thumbnails: Thumbnails, sha256: str) -> int:
    """One more than the thumbnail's index: 0 is no thumbnail."""
    index = thumbnails.index(sha256) if sha256 else None
    return 0 if index is None else index + 1


def _files(data: ReportData) -> tuple[list[str], NDArray[np.int64]]:
    """Full pictures in the page's folder, and one more than each row's index among them.

    A redacted page must not lead to them.
    """
    indices = np.zeros(len(data.edits), dtype=np.int64)
    files: dict[str, int] = {}
    if data.folder is None or data.redact != "none":
        return [], indices
    relative: dict[str, str] = {}
    for row, sha256 in enumerate(data.edits.image):
        if sha256 not in relative:
            relative[sha256] = _link(data, data.folder, sha256) if sha256 else ""
        if relative[sha256]:
            indices[row] = files.setdefault(relative[sha256], len(files)) + 1
    return list(files), indices


def _source_file(data: ReportData, portrait: Portrait) -> str:
    """A portrait's own file, where it may be shown and lies in the page's folder."""
    path = source_of(data, portrait)
    shown = data.folder is not None and data.redact == "none" and path.is_relative_to(data.folder)
    return path.relative_to(data.folder).as_posix() if data.folder and shown else ""


def _link(data: ReportData, folder: Path, sha256: str) -> str:
    if data.link:
        return data.link(sha256)
    path = data.image_path(sha256)
    return path.relative_to(folder).as_posix() if path is not None and path.is_relative_to(folder) else ""


def _short_keys(keys: Sequence[str]) -> list[str]:
    """As many characters of each key as tell them apart, and eight at least."""
    for length in range(8, max(map(len, keys), default=8)):
        short = [key[:length] for key in keys]
        if len(set(short)) == len(keys):
            return short
    return list(keys)


def _score(data: ReportData, score: Scores) -> dict[str, Json]:
    axis = rubric.load().axes.get(score.axis)
    judges = {judge.name for judge in data.judges}
    return {
        "judge": score.judge,
        "axis": score.axis,
        "note": mark(data.standing, score.judge, score.axis),
        "short": list(axis.short or axis.choices) if axis else [],
        "scale": bool(axis and axis.is_scale),
        "unchanged": axis.unchanged if axis else None,
        "largest": _largest(score, axis),
        "smallest": smallest_effect(score.axis, data.settings.smallest_effects) or 0.0,
        # Here too little change is the fault, not too much.
        "cut": rubric.load().rates["unchanged"].at_most if score.axis == "visible_change" else None,
        "part": not judges or score.judge in judges,
        "headline": headlines.is_headline_axis(score.axis) and any(score is shown for shown in data.headline_scores),
        "title": numbers.title(score.axis),
        # A share of the picture reads like a rate.
        "rate": score.axis == "changed_area",
        **_format(score.axis),
    }


def _largest(score: Scores, axis: Axis | None) -> float:
    """The largest distance from an unchanged person: a quantity in its own unit has no worst value."""
    away = np.abs(score.value - (axis.unchanged if axis and axis.unchanged is not None else 0.0))
    return float(f"{np.max(away, initial=0.0, where=~np.isnan(away)):.6g}") or 1.0


def _quantities(data: ReportData) -> Iterator[dict[str, Json]]:
    """How each quantity is computed from the rows, and shown."""
    columns = {(score.judge, score.axis): index for index, score in enumerate(data.scores)}
    ordered = sorted(data.estimates, key=table_order)
    for quantity, judge in dict.fromkeys((estimate.quantity, estimate.judge) for estimate in ordered):
        rate = rate_of(quantity)
        column = columns.get((judge, axis_of(quantity)))
        if column is None and quantity not in EDIT_RATES:
            continue
        yield {
            "name": quantity,
            "judge": judge,
            "title": numbers.title(quantity),
            "score": column,
            "rate": numbers.is_rate(quantity),
            "atLeast": rate.at_least if rate else None,
            "atMost": rate.at_most if rate else None,
            **_format(quantity),
        }


def _format(quantity: str) -> dict[str, Json]:
    """What the script needs to write a value as `numbers.number` does."""
    return {
        "digits": numbers.digits(quantity),
        "plus": numbers.is_signed(quantity),
        "symbol": numbers.symbol(quantity),
    }


def _estimate(estimate: Estimate, adjusted: Mapping[tuple[str, ...], float]) -> list[Json]:
    interval = estimate.outcome if isinstance(estimate.outcome, Interval) else None
    return [
        estimate.editor,
        estimate.arm,
        estimate.judge,
        estimate.quantity,
        numbers.title(estimate.quantity),
        estimate.scope,
        group_text(estimate),
        float(numbers.machine(interval.value)) if interval else None,
        numbers.with_interval(estimate),
        chance_text(adjusted, estimate),
        estimate.portraits,
        estimate.edits,
        method_text(estimate),
        rows_of(estimate),
    ]


def group_text(estimate: Estimate) -> str:
    """The group, or groups, that an estimate is about."""
    group = {"all": "everyone", "disparity": "max − min"}.get(estimate.scope, estimate.group.replace(" - ", " − "))
    return f"{numbers.factor_name(estimate.factor)}: {group}" if estimate.factor else group


def adjusted_p(data: ReportData) -> Mapping[tuple[str, ...], float]:
    """The p values that decide."""
    return {place_of(gap.disparity): gap.finding.p for gap in decisive_gaps(data) if gap.finding.p is not None}


def chance_text(adjusted: Mapping[tuple[str, ...], float], estimate: Estimate) -> str:
    """How large a gap is by chance alone, and its p value: the one that decides, if this gap decides anything."""
    null = estimate.null if isinstance(estimate, Disparity) and isinstance(estimate.outcome, Interval) else None
    if null is None:
        return ""
    p = adjusted.get(place_of(estimate))
    tested = f"{numbers.p_value(null.omnibus)}, not adjusted" if p is None else f"{numbers.p_value(p)} (Holm)"
    return f"below {numbers.number(estimate.quantity, null.high)} · {tested}"


def method_text(estimate: Estimate) -> str:
    """How an estimate was computed."""
    return estimate.outcome.method if isinstance(estimate.outcome, Interval) else "not estimable"


def _remarks(data: ReportData, worst: Sequence[int]) -> dict[str, list[list[str]]]:
    declined = np.flatnonzero((data.edits.state == EditState.REFUSED) | (data.edits.state == EditState.FAILED))
    rows = [*declined[:_DECLINED].tolist(), *worst]
    by_key = data.remarks([data.edits.keys[row] for row in rows])
    by_row: dict[str, list[list[str]]] = {}
    left = _REMARKS
    for row in rows:
        remarks = [[remark.judge, remark.axis, _cut(remark.text)] for remark in by_key.get(data.edits.keys[row], ())]
        left -= sum(len(text) for *_, text in remarks)
        if left < 0:
            break
        if remarks:
            by_row[str(row)] = remarks
    return by_row


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_REMARK else text[: _LONGEST_REMARK - 1] + "…"


def _grid(grid: SideBySide | None) -> Mapping[str, Json] | None:
    if grid is None:
        return None
    return {
        "factor": numbers.factor_name(grid.factor),
        "levels": grid.levels,
        "portraits": grid.portraits,
        "prompts": grid.prompts,
        "rows": [[editor, arm, rows] for (editor, arm), rows in grid.rows.items()],
    }


ROWS = "#edits?"


def rows_of(estimate: Estimate) -> str:
    """The rows that an estimate was computed from; between groups, all groups side by side."""
    query = _query(estimate)
    if estimate.scope == "group":
        query += [(f"label.{estimate.factor}", estimate.group)]
    elif estimate.scope in ("disparity", "contrast"):
        query += [("by", estimate.factor)]
    return ROWS + urlencode(query)


def cell_of(estimate: Estimate, *, prompt: str, group: str) -> str:
    """The rows of one group and one instruction."""
    return ROWS + urlencode([*_query(estimate), ("prompt", prompt), (f"label.{estimate.factor}", group)])


def _query(estimate: Estimate) -> list[tuple[str, str]]:
    names = ("quantity", "judge", "editor", "arm")
    named = ((name, value) for name in names if (value := getattr(estimate, name)))
    return [("view", "table"), *named]
