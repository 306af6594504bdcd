"""From rows to one sum and one count per portrait: the portrait is the unit, so nothing finer is resampled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stillme import rubric
from stillme.estimates.rows import Edits, EditState, RatingState, Scores
from stillme.rubric import Axis
from stillme.types import Portrait

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

REASONS = ("edit missing", "refused", "edit failed", "not judged", "abstained", "judge failed")
"""Why an edit may be absent from a number, in the order in which it is asked."""

EDIT_RATES = {"refused": "Refused", "failed": "Failed"}
"""Rates of the editing itself; no judge is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One mean or rate of one editor, arm and judge, collapsed to portraits."""

    name: str
    editor: str
    arm: str
    judge: str
    sums: Floats
    """Per portrait of `Columns.portraits`: the sum of the values."""
    counts: Floats
    """Per portrait: how many edits have a value."""
    excluded: NDArray[np.int64]
    """Per portrait and reason: how many edits have none."""
    bounds: tuple[float, float] | None
    """The values that are possible at all."""
    is_rate: bool

    def excluded_within(self, members: Flags) -> Mapping[str, int]:
        """What is missing for these portraits, by reason; reasons that did not occur are left out."""
        totals = self.excluded[members].sum(axis=0)
        return {reason: int(total) for reason, total in zip(REASONS, totals, strict=True) if total}


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The rows in one canonical order, so that no sum depends on how they were stored."""

    edits: Edits
    order: NDArray[np.intp]
    """Row numbers, sorted by key."""
    rank: NDArray[np.intp]
    """Each row's portrait as its place among the portraits sorted by id, in `order`."""
    portraits: tuple[Portrait, ...]
    """Sorted by id."""
    places: NDArray[np.intp]
    """Their indices in `edits.portraits`."""

    @classmethod
    def of(cls, edits: Edits) -> Columns:
        """Sort once."""
        by_id = sorted(range(len(edits.portraits)), key=lambda place: edits.portraits[place].id)
        places = np.array(by_id, dtype=np.intp)
        rank = np.argsort(places)
        order = np.argsort(np.asarray(edits.keys, dtype=np.str_), kind="stable") if len(edits) else _no_rows()
        return cls(
            edits=edits,
            order=order,
            rank=rank[edits.portrait[order]],
            portraits=tuple(edits.portraits[place] for place in by_id),
            places=places,
        )

    def quantities(self, scores: Sequence[Scores]) -> Iterator[Quantity]:
        """Every quantity the rows can give: the edit rates, then each judge's axes with their rates."""
        edits = self.edits
        state = edits.state[self.order]
        asked = sorted(scores, key=lambda score: (score.judge, score.axis))
        for editor_code in sorted(range(len(edits.editors)), key=edits.editors.__getitem__):
            for arm_code in sorted(range(len(edits.arms)), key=edits.arms.__getitem__):
                here = (edits.editor[self.order] == editor_code) & (edits.arm[self.order] == arm_code)
                if not here.any():
                    continue
                cell = _Cell(self, edits.editors[editor_code], edits.arms[arm_code], here, state)
                yield from cell.edit_rates()
                for score in asked:
                    yield from cell.judged(score)


@dataclass(frozen=True, slots=True)
class _Cell:
    """The rows of one editor and arm."""

    columns: Columns
    editor: str
    arm: str
    here: Flags
    state: NDArray[np.int32]

    def edit_rates(self) -> Iterator[Quantity]:
        # A failure says nothing about the person, so it cannot count against refusal.
        answered = self.here & ((self.state == EditState.EDITED) | (self.state == EditState.REFUSED))
        missing = self.here & (self.state == EditState.MISSING)
        failed = self.here & (self.state == EditState.FAILED)
        refused = self.state == EditState.REFUSED
        yield self._collapse("refused", "", refused, answered, {0: missing, 2: failed}, (0.0, 1.0), is_rate=True)
        yield self._collapse(
            "failed", "", self.state == EditState.FAILED, answered | failed, {0: missing}, (0.0, 1.0), is_rate=True
        )

    def judged(self, score: Scores) -> Iterator[Quantity]:
        axis = rubric.load().axes.get(score.axis)
        order = self.columns.order
        value, rating = score.value[order], score.state[order]
        edited = self.here & (self.state == EditState.EDITED)
        rated = edited & (rating == RatingState.RATED)
        due = self.here & (self._asked_for(axis) | rated)
        if not due.any():
            return
        absent: dict[int, Flags] = {
            0: due & (self.state == EditState.MISSING),
            1: due & (self.state == EditState.REFUSED),
            2: due & (self.state == EditState.FAILED),
            3: due & edited & (rating == RatingState.MISSING),
            4: due & edited & (rating == RatingState.ABSTAINED),
            5: due & edited & (rating == RatingState.FAILED),
        }
        bounds = (1.0, 5.0) if axis and axis.is_scale else None
        yield self._collapse(score.axis, score.judge, value, rated, absent, bounds, is_rate=False)
        for rate in rubric.load().rates.values():
            if rate.axis == score.axis:
                holds = np.ones(len(value), dtype=np.bool_)
                with np.errstate(invalid="ignore"):
                    if rate.at_least is not None:
                        holds &= value >= rate.at_least
                    if rate.at_most is not None:
                        holds &= value <= rate.at_most
                yield self._collapse(rate.name, score.judge, holds, rated, absent, (0.0, 1.0), is_rate=True)

    def _asked_for(self, axis: Axis | None) -> Flags:
        """Rows whose prompt the axis is for; an unanswered one elsewhere is no omission."""
        prompts = self.columns.edits.prompts
        only = axis.only if axis else ""
        fits = np.array([not only or prompt.subcategory == only for prompt in prompts], dtype=np.bool_)
        return fits[self.columns.edits.prompt[self.columns.order]]

    def _collapse(
        self,
        name: str,
        judge: str,
        value: Floats | Flags,
        counted: Flags,
        absent: Mapping[int, Flags],
        bounds: tuple[float, float] | None,
        *,
        is_rate: bool,
    ) -> Quantity:
        rank, size = self.columns.rank, len(self.columns.portraits)
        excluded = np.zeros((size, len(REASONS)), dtype=np.int64)
        for reason, rows in absent.items():
            excluded[:, reason] = np.bincount(rank[rows], minlength=size)
        return Quantity(
            name=name,
            editor=self.editor,
            arm=self.arm,
            judge=judge,
            sums=sums_by(rank[counted], value[counted].astype(np.float64), size),
            counts=np.bincount(rank[counted], minlength=size).astype(np.float64),
            excluded=excluded,
            bounds=bounds,
            is_rate=is_rate,
        )


def sums_by(places: NDArray[np.intp], values: Floats, size: int) -> Floats:
    """The sum of the values at each of `size` places."""
    return np.bincount(places, weights=values, minlength=size).astype(np.float64)


def _no_rows() -> NDArray[np.intp]:
    return np.zeros(0, dtype=np.intp)
