"""Rows of scores that were made elsewhere, as the columns that estimates are computed from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillme.errors import StillmeError, did_you_mean
from stillme.estimates import Edits, EditState, RatingState, Scores
from stillme.types import ImageFile, Portrait, Prompt

_NO_IMAGE = ImageFile(path=Path(), sha256="")
_DEFAULTS = {"editor": "editor", "prompt": "all", "arm": "baseline", "judge": "judge", "block": ""}


def columns_of(
    rows: Sequence[Mapping[str, Any]],
    *,
    portrait: str,
    groups: Sequence[str],
    scores: Sequence[str],
    names: Mapping[str, str | None],
) -> tuple[Edits, tuple[Scores, ...]]:
    """One entry per row; a score that is empty, None or NaN is an abstention."""
    if not rows:
        raise StillmeError("There are no rows to estimate from.")
    wanted = {portrait, *groups, *scores, *(name for name in names.values() if name)}
    for column in sorted(wanted):
        if column not in rows[0]:
            known = ", ".join(map(str, rows[0]))
            raise StillmeError(
                f"There is no column {column!r}.{did_you_mean(column, map(str, rows[0]))} Known: {known}."
            )
    people = _portraits(rows, portrait, groups, names.get("block"))
    codes = {name: _coded(rows, names.get(name), _DEFAULTS[name]) for name in ("editor", "prompt", "arm")}
    place = {person.id: index for index, person in enumerate(people)}
    edits = Edits(
        keys=[str(number) for number in range(len(rows))],
        portrait=np.array([place[str(row[portrait])] for row in rows], dtype=np.int32),
        prompt=codes["prompt"][1],
        editor=codes["editor"][1],
        arm=codes["arm"][1],
        state=np.full(len(rows), EditState.EDITED, dtype=np.int32),
        image=[""] * len(rows),
        portraits=people,
        prompts=tuple(Prompt(id=name, text=name, category="own", subcategory="own") for name in codes["prompt"][0]),
        editors=codes["editor"][0],
        arms=codes["arm"][0],
        second=None,
        matching=None,
        seed=None,
    )
    judges, judge_codes = _coded(rows, names.get("judge"), _DEFAULTS["judge"])
    return edits, tuple(
        _scores(rows, axis, judge, judge_codes == code) for code, judge in enumerate(judges) for axis in scores
    )


def _portraits(
    rows: Sequence[Mapping[str, Any]], portrait: str, groups: Sequence[str], block: str | None
) -> tuple[Portrait, ...]:
    people: dict[str, Portrait] = {}
    for number, row in enumerate(rows, start=1):
        name, labels = str(row[portrait]), {group: _label(row[group]) for group in groups}
        known = people.setdefault(
            name,
            Portrait(
                id=name,
                image=_NO_IMAGE,
                attributes=labels,
                label_origin="given with the rows",
                licence="",
                block=str(row[block]) if block else "",
            ),
        )
        if dict(known.attributes) != labels:
            changed = next(group for group in groups if known.attributes[group] != labels[group])
            raise StillmeError(
                f"Row {number}: portrait {name!r} has {changed} {labels[changed]!r}, and "
                f"{known.attributes[changed]!r} in an earlier row. A portrait belongs to one group."
            )
    return tuple(people.values())


def _label(value: Any) -> str:
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value)


def _coded(
    rows: Sequence[Mapping[str, Any]], column: str | None, default: str
) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    if column is None:
        return (default,), np.zeros(len(rows), dtype=np.int32)
    values = [str(row[column]) for row in rows]
    levels = {level: code for code, level in enumerate(dict.fromkeys(values))}
    return tuple(levels), np.array([levels[value] for value in values], dtype=np.int32)


def _scores(rows: Sequence[Mapping[str, Any]], axis: str, judge: str, own: NDArray[np.bool_]) -> Scores:
    value = np.array([_number(row[axis], axis, number) for number, row in enumerate(rows, start=1)])
    value[~own] = np.nan
    state = np.where(np.isnan(value), RatingState.ABSTAINED, RatingState.RATED)
    state[~own] = RatingState.MISSING
    return Scores(judge=judge, axis=axis, value=value, state=state.astype(np.int32))


def _number(value: Any, axis: str, row: int) -> float:
    if value is None or value == "":
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        raise StillmeError(
            f"Row {row}: {axis} is {value!r}, which is not a number. Leave it empty if there is no score."
        ) from None
