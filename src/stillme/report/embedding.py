"""The rows inside the page: columns as bytes, packed once, so that the page can filter and count for itself."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillme import rubric
from stillme.estimates import Disparity, EditState, Scores, mark
from stillme.estimates.cuts import rate_of
from stillme.estimates.quantities import EDIT_RATES
from stillme.report import links, numbers
from stillme.report.album import Album
from stillme.report.data import ReportData
from stillme.report.gallery import Crossing
from stillme.rubric import Axis
from stillme.types import Estimate, Interval, Json

_LONGEST_REMARK = 500
_REMARKS = 400_000
"""The most characters of evidence that a page carries."""

_DECLINED = 500
"""Refusals and failures whose words a page carries."""

_SCOPES = ("all", "disparity", "group", "contrast")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Rows that the page singles out."""

    worst: Sequence[int]
    """In the order in which the gallery shows them."""
    mosaic: Sequence[int]
    crossing: Crossing | None


def embed(data: ReportData, album: Album, choices: Choices) -> str:
    """Everything that the page's script needs, as base64 of a packed block: a header as JSON, then columns."""
    columns = _Columns()
    edits = data.edits
    for name in ("editor", "arm", "prompt", "portrait", "state"):
        columns.add(name, getattr(edits, name))
    if edits.second is not None:
        # One more than the portrait's place, as 0 is nobody.
        columns.add("second", edits.second + 1)
    columns.add("picture", np.array([_place(album, name) for name in edits.image], dtype=np.int64))
    files, places = _files(data)
    columns.add("file", places)
    for place, score in enumerate(data.scores):
        columns.add(f"score{place}", np.asarray(score.value, dtype=np.float32))
        columns.add(f"rating{place}", score.state)
    header = {
        "rows": len(edits),
        "editors": edits.editors,
        "arms": edits.arms,
        "prompts": [[prompt.id, prompt.text] for prompt in edits.prompts],
        "portraits": [
            [
                portrait.id,
                _place(album, portrait.image.sha256),
                *(portrait.attributes.get(f, "") for f in _factors(data)),
            ]
            for portrait in edits.portraits
        ],
        "factors": _factors(data),
        "keys": _short(edits.keys),
        "files": files,
        "scores": [_score(data, score) for score in data.scores],
        "quantities": list(_quantities(data)),
        "estimates": [_estimate(each) for each in sorted(data.estimates, key=table_place)],
        "remarks": _remarks(data, choices.worst),
        "worst": list(choices.worst),
        "mosaic": list(choices.mosaic),
        "grid": _grid(choices.crossing),
        "redact": data.redact,
        "columns": columns.described,
    }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    size = len(text).to_bytes(4, "little")
    padding = b" " * (-len(text) % 8)
    packed = zlib.compress(size + bytes(4) + text + padding + columns.contents, 6)
    return base64.b64encode(packed).decode("ascii")


def table_place(found: Estimate) -> tuple[int, str, str, str, str, str, int, str]:
    """The order of the table of estimates: headline quantities first, editors side by side."""
    scope = _SCOPES.index(found.scope) if found.scope in _SCOPES else len(_SCOPES)
    place = numbers.headline_place(found.quantity)
    return place, found.quantity, found.judge, found.factor, found.arm, found.editor, scope, found.group


class _Columns:
    """Typed arrays end to end, each from a multiple of eight bytes on."""

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


def _place(album: Album, name: str) -> int:
    """One more than the thumbnail's place: 0 is no thumbnail."""
    place = album.place(name) if name else None
    return 0 if place is None else place + 1


def _factors(data: ReportData) -> list[str]:
    return list(data.settings.factors)


def _files(data: ReportData) -> tuple[list[str], NDArray[np.int64]]:
    """Full pictures that lie beside the page; a redacted page must not lead to them."""
    places = np.zeros(len(data.edits), dtype=np.int64)
    files: dict[str, int] = {}
    if data.folder is None or data.redact != "none":
        return [], places
    known: dict[str, str] = {}
    for row, name in enumerate(data.edits.image):
        if name not in known:
            known[name] = _beside(data.image_path(name) if name else None, data.folder)
        if known[name]:
            places[row] = files.setdefault(known[name], len(files)) + 1
    return list(files), places


def _beside(path: Path | None, folder: Path) -> str:
    return path.relative_to(folder).as_posix() if path is not None and path.is_relative_to(folder) else ""


def _short(keys: Sequence[str]) -> list[str]:
    """As many characters of each key as tell them apart, and eight at least."""
    for length in range(8, max(map(len, keys), default=8)):
        cut = [key[:length] for key in keys]
        if len(set(cut)) == len(keys):
            return cut
    return list(keys)


def _score(data: ReportData, score: Scores) -> dict[str, Json]:
    axis = rubric.load().axes.get(score.axis)
    own = {judge.name for judge in data.judges}
    return {
        "judge": score.judge,
        "axis": score.axis,
        "note": mark(data.standing, score.judge, score.axis),
        "short": list(axis.short) if axis else [],
        "scale": bool(axis and axis.is_scale),
        "unchanged": axis.unchanged if axis else None,
        "largest": _largest(score, axis),
        # Too little changed is the fault here, not too much.
        "cut": rubric.load().rates["unchanged"].at_most if score.axis == "changed_area" else None,
        "part": not own or score.judge in own,
        "headline": numbers.is_telling(score.axis) and any(score is each for each in data.headline_scores),
        "title": numbers.title(score.axis),
        # A share of the picture reads like a rate.
        "rate": score.axis == "changed_area",
        **_shown(score.axis),
    }


def _largest(score: Scores, axis: Axis | None) -> float:
    """The furthest from an unchanged person that anybody was seen: a quantity in its own unit has no worst value."""
    away = np.abs(score.value - (axis.unchanged if axis and axis.unchanged is not None else 0.0))
    return float(f"{np.max(away, initial=0.0, where=~np.isnan(away)):.6g}") or 1.0


def _quantities(data: ReportData) -> Iterator[dict[str, Json]]:
    """How each quantity is read off the rows, and shown."""
    places = {(score.judge, score.axis): place for place, score in enumerate(data.scores)}
    asked = dict.fromkeys((each.quantity, each.judge) for each in sorted(data.estimates, key=table_place))
    for quantity, judge in asked:
        rate = rate_of(quantity)
        place = places.get((judge, rate.axis if rate else quantity))
        if place is None and quantity not in EDIT_RATES:
            continue
        yield {
            "name": quantity,
            "judge": judge,
            "title": numbers.title(quantity),
            "score": place,
            "rate": numbers.is_rate(quantity),
            "atLeast": rate.at_least if rate else None,
            "atMost": rate.at_most if rate else None,
            **_shown(quantity),
        }


def _shown(quantity: str) -> dict[str, Json]:
    """How to write a value, in the terms of `numbers.number`."""
    return {
        "digits": 3 if numbers.unit(quantity) and not numbers.symbol(quantity) else 2,
        "plus": numbers.signed(quantity),
        "symbol": numbers.symbol(quantity),
    }


def _estimate(found: Estimate) -> list[Json]:
    known = found.outcome if isinstance(found.outcome, Interval) else None
    return [
        found.editor,
        found.arm,
        found.judge,
        found.quantity,
        numbers.title(found.quantity),
        found.scope,
        who(found),
        float(f"{known.value:.9g}") if known else None,
        numbers.limits(found),
        chance(found),
        found.portraits,
        found.edits,
        method(found),
        links.rows_of(found),
    ]


def who(found: Estimate) -> str:
    """Whom an estimate is about."""
    named = {"all": "everyone", "disparity": "max − min"}.get(found.scope, found.group.replace(" - ", " − "))
    return f"{numbers.factor(found.factor)}: {named}" if found.factor else named


def chance(found: Estimate) -> str:
    """What chance alone would do to a gap."""
    null = found.null if isinstance(found, Disparity) and isinstance(found.outcome, Interval) else None
    return f"below {numbers.number(found.quantity, null.high)} · p = {null.omnibus:.4f}" if null else ""


def method(found: Estimate) -> str:
    """How an estimate came about."""
    return found.outcome.method if isinstance(found.outcome, Interval) else "not estimable"


def _remarks(data: ReportData, worst: Sequence[int]) -> dict[str, list[list[str]]]:
    declined = np.flatnonzero((data.edits.state == EditState.REFUSED) | (data.edits.state == EditState.FAILED))
    rows = [*declined[:_DECLINED].tolist(), *worst]
    said = data.remarks([data.edits.keys[row] for row in rows])
    kept: dict[str, list[list[str]]] = {}
    room = _REMARKS
    for row in rows:
        remarks = [[each.who, each.axis, _cut(each.text)] for each in said.get(data.edits.keys[row], ())]
        room -= sum(len(text) for *_, text in remarks)
        if room < 0:
            break
        if remarks:
            kept[str(row)] = remarks
    return kept


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_REMARK else text[: _LONGEST_REMARK - 1] + "…"


def _grid(crossing: Crossing | None) -> Mapping[str, Json] | None:
    if crossing is None:
        return None
    return {
        "factor": numbers.factor(crossing.factor),
        "levels": crossing.levels,
        "portraits": crossing.portraits,
        "alike": [[numbers.factor(name), value] for name, value in crossing.alike],
        "prompts": crossing.prompts,
        "rows": [[editor, arm, rows] for (editor, arm), rows in crossing.rows.items()],
    }
