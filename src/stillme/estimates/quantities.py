"""From rows to one sum and one count per portrait: the portrait is the unit, so nothing finer is looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from stillme.core import rubric
from stillme.core.rubric import Axis, Rate, cuts
from stillme.core.types import Interval, Portrait
from stillme.estimates.rows import Edits, EditState, Flags, RatingState, Scores

Floats = NDArray[np.float64]


class Exclusion(StrEnum):
    """Why an edit has no part in a number."""

    EDIT_MISSING = "edit missing"
    REFUSED = "refused"
    EDIT_FAILED = "edit failed"
    NOT_JUDGED = "not judged"
    ABSTAINED = "abstained"
    JUDGE_FAILED = "judge failed"
    NOT_PAIRED = "not paired"
    NO_FEATURE_PROMPT = "no feature prompt"


EDIT_RATES = {"refused": "Refused", "failed": "Failed"}
"""Rates of the editing itself; no judge is asked."""


class SumsByPrompt(NamedTuple):
    """Portraits × prompts."""

    sums: Floats
    counts: Floats


class Counted(TypedDict):
    """Which quantity, and how many portraits and edits of a set have a value; how many edits have none, by reason."""

    quantity: str
    editor: str
    arm: str
    judge: str
    portraits: int
    edits: int
    excluded: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One mean or rate of one editor, arm and judge, edit by edit in the order of `Columns`."""

    name: str
    editor: str
    arm: str
    judge: str
    value: Floats
    counted: Flags
    """The edits that have a value."""
    excluded: Mapping[Exclusion, Flags]
    """The edits that should have one, by the reason why they have none."""
    bounds: tuple[float, float] | None
    """The lowest and the highest value that is possible."""
    is_rate: bool
    middle: float | None = None
    """The value that means "no change", where there are values on both sides of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Scores on a bounded scale as shares of it, from 0 to 1: of all of it, or of one side of its middle."""

    scale: float
    """What a share of 1 is worth."""
    sums: Floats
    """Per portrait."""
    squares: Floats
    by_prompt: Floats | None = None
    """Portraits × prompts."""


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
    squares: Floats
    """Per portrait: the sum of the squared values."""
    excluded: Mapping[Exclusion, NDArray[np.int64]]
    """By reason: how many edits of each portrait have no value; only reasons that occurred."""
    bounds: tuple[float, float] | None
    """The lowest and the highest value that is possible."""
    is_rate: bool
    by_prompt: SumsByPrompt | None = None
    """The same by portrait and prompt, where prompts are a sample too."""
    split: tuple[Part, ...] = ()
    """What lies above and what below the middle of a scale whose middle means "no change"."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """A bounded quantity as shares of its scale; nothing for one without bounds."""
        if self.split or self.bounds is None:
            return self.split
        low, width = self.bounds[0], self.bounds[1] - self.bounds[0]
        by_prompt = None if self.by_prompt is None else (self.by_prompt.sums - low * self.by_prompt.counts) / width
        squares = (self.squares - 2 * low * self.sums + low**2 * self.counts) / width**2
        return (Part(scale=width, sums=(self.sums - low * self.counts) / width, squares=squares, by_prompt=by_prompt),)

    def answering(self, value: float) -> Quantity:
        """The same as if every edit that the judge abstained on had this value."""
        abstained = self.excluded.get(Exclusion.ABSTAINED, np.zeros(len(self.counts)))
        return replace(
            self,
            sums=self.sums + value * abstained,
            squares=self.squares + value**2 * abstained,
            counts=self.counts + abstained,
        )

    def within(self, sets: Sequence[Flags]) -> list[Counted]:
        """What is counted in each of these sets of portraits."""
        named = {"quantity": self.name, "editor": self.editor, "arm": self.arm, "judge": self.judge}
        reasons = [reason for reason in Exclusion if reason in self.excluded]
        columns = [self.counts > 0, self.counts, *(self.excluded[reason] for reason in reasons)]
        members = np.array(sets, dtype=np.float64).reshape(-1, len(self.counts))
        counted: list[list[int]] = (members @ np.stack(columns, axis=1)).astype(int).tolist()
        return [
            Counted(
                **named,
                portraits=portraits,
                edits=edits,
                excluded={reason.value: count for reason, count in zip(reasons, left_out, strict=True) if count},
            )
            for portraits, edits, *left_out in counted
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The rows in one canonical order, so that no sum depends on how they were stored."""

    edits: Edits
    order: NDArray[np.intp]
    """Row numbers, sorted by key."""
    rank: NDArray[np.intp]
    """Each row's portrait as its place among the portraits sorted by id, in `order`."""
    prompt: NDArray[np.intp]
    """Each row's prompt as its place among the prompts sorted by id, in `order`."""
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
        prompts = sorted(range(len(edits.prompts)), key=lambda place: edits.prompts[place].id)
        prompt_rank = np.argsort(np.array(prompts, dtype=np.intp))
        # A row that is there twice counts once.
        order = np.unique(np.asarray(edits.keys, dtype=np.str_), return_index=True)[1]
        return cls(
            edits=edits,
            order=order,
            rank=rank[edits.portrait[order]],
            prompt=prompt_rank[edits.prompt[order]],
            portraits=tuple(edits.portraits[place] for place in by_id),
            places=places,
        )

    def quantities(
        self, scores: Sequence[Scores], *, every_cut: bool = False, prompts: bool = False
    ) -> Iterator[Quantity]:
        """Every quantity the rows can give, collapsed; with `prompts`, also by prompt."""
        return (self.collapse(measured, prompts=prompts) for measured in self.measured(scores, every_cut=every_cut))

    def measured(self, scores: Sequence[Scores], *, every_cut: bool = False) -> Iterator[Measured]:
        """Every quantity the rows can give: the edit rates, then each judge's axes with their rates.

        With `every_cut`, rates at every cut of a scale instead of the named ones.
        """
        edits = self.edits
        state = edits.state[self.order]
        asked = sorted(scores, key=lambda score: (score.judge, score.axis))
        for editor_code in sorted(range(len(edits.editors)), key=edits.editors.__getitem__):
            for arm_code in sorted(range(len(edits.arms)), key=edits.arms.__getitem__):
                here = (edits.editor[self.order] == editor_code) & (edits.arm[self.order] == arm_code)
                if not here.any():
                    continue
                cell = _Cell(self, edits.editors[editor_code], edits.arms[arm_code], here, state)
                if edits.has_states and not every_cut:
                    yield from cell.edit_rates()
                for score in asked:
                    yield from cell.judged(score, every_cut=every_cut)

    def collapse(self, measured: Measured, *, prompts: bool = False) -> Quantity:
        """Sum up per portrait."""
        size, counted = len(self.portraits), measured.counted
        rank, value = self.rank[counted], measured.value[counted]
        return Quantity(
            name=measured.name,
            editor=measured.editor,
            arm=measured.arm,
            judge=measured.judge,
            sums=sums_by(rank, value, size),
            counts=np.bincount(rank, minlength=size).astype(np.float64),
            squares=sums_by(rank, value * value, size),
            excluded={
                reason: np.bincount(self.rank[rows], minlength=size)
                for reason, rows in measured.excluded.items()
                if rows.any()
            },
            bounds=measured.bounds,
            is_rate=measured.is_rate,
            by_prompt=self._by_prompt(rank, self.prompt[counted], value) if prompts else None,
            split=split_at(
                measured.middle,
                measured.bounds,
                value,
                rank,
                (size, len(self.edits.prompts)),
                self.prompt[counted] if prompts else None,
            ),
        )

    def _by_prompt(self, rank: NDArray[np.intp], prompt: NDArray[np.intp], value: Floats) -> SumsByPrompt:
        shape = (len(self.portraits), len(self.edits.prompts))
        place, size = rank * shape[1] + prompt, shape[0] * shape[1]
        counts = np.bincount(place, minlength=size).astype(np.float64)
        return SumsByPrompt(sums_by(place, value, size).reshape(shape), counts.reshape(shape))


@dataclass(frozen=True, slots=True)
class _Cell:
    """The rows of one editor and arm."""

    columns: Columns
    editor: str
    arm: str
    here: Flags
    state: NDArray[np.int32]

    def edit_rates(self) -> Iterator[Measured]:
        # A failure says nothing about the person, so it cannot count against refusal.
        answered = self.here & ((self.state == EditState.EDITED) | (self.state == EditState.REFUSED))
        failed = self.here & (self.state == EditState.FAILED)
        refused = (self.state == EditState.REFUSED).astype(np.float64)
        not_made = {
            Exclusion.EDIT_MISSING: self.here & (self.state == EditState.MISSING),
            Exclusion.NO_FEATURE_PROMPT: self.here & (self.state == EditState.WITHHELD),
        }
        yield self._rate("refused", "", refused, answered, {**not_made, Exclusion.EDIT_FAILED: failed})
        yield self._rate("failed", "", failed.astype(np.float64), answered | failed, not_made)

    def judged(self, score: Scores, *, every_cut: bool) -> Iterator[Measured]:
        axis = rubric.load().axes.get(score.axis)
        order = self.columns.order
        value, rating = score.value[order], score.state[order]
        counting = self.here & self.columns.edits.counting(score.axis)[order]
        edited = counting & (self.state == EditState.EDITED)
        rated = edited & (rating == RatingState.RATED)
        due = counting & (self._asked_for(axis) | rated)
        if not due.any():
            return
        excluded = {
            Exclusion.EDIT_MISSING: due & (self.state == EditState.MISSING),
            Exclusion.REFUSED: due & (self.state == EditState.REFUSED),
            Exclusion.EDIT_FAILED: due & (self.state == EditState.FAILED),
            Exclusion.NOT_JUDGED: due & edited & (rating == RatingState.MISSING),
            Exclusion.ABSTAINED: due & edited & (rating == RatingState.ABSTAINED),
            Exclusion.JUDGE_FAILED: due & edited & (rating == RatingState.FAILED),
            Exclusion.NO_FEATURE_PROMPT: due & (self.state == EditState.WITHHELD),
        }
        # A mean of persons says nothing; `roles` has the share that follows the stereotype.
        if not every_cut and not (axis and axis.is_nominal):
            yield Measured(
                name=score.axis,
                editor=self.editor,
                arm=self.arm,
                judge=score.judge,
                value=value,
                counted=rated,
                excluded=excluded,
                bounds=(1.0, 5.0) if axis and axis.is_scale else None,
                is_rate=False,
                middle=axis.unchanged if axis and axis.is_scale and axis.unchanged not in (1.0, 5.0) else None,
            )
        for rate in _rates(score.axis, axis, every_cut=every_cut):
            yield self._rate(rate.name, score.judge, meets(rate, value), rated, excluded)

    def _asked_for(self, axis: Axis | None) -> Flags:
        """Rows whose prompt the axis is for; on other prompts nothing is missing."""
        prompts = self.columns.edits.prompts
        fits = np.array([axis is None or axis.asked_of(prompt) for prompt in prompts], dtype=np.bool_)
        return fits[self.columns.edits.prompt[self.columns.order]]

    def _rate(
        self, name: str, judge: str, value: Floats, counted: Flags, excluded: Mapping[Exclusion, Flags]
    ) -> Measured:
        return Measured(
            name=name,
            editor=self.editor,
            arm=self.arm,
            judge=judge,
            value=value,
            counted=counted,
            excluded=excluded,
            bounds=(0.0, 1.0),
            is_rate=True,
        )


def meets(rate: Rate, value: Floats) -> Floats:
    """1 where a value counts towards the rate, else 0."""
    counts = np.ones(len(value), dtype=np.bool_)
    with np.errstate(invalid="ignore"):
        if rate.at_least is not None:
            counts &= value >= rate.at_least
        if rate.at_most is not None:
            counts &= value <= rate.at_most
    return counts.astype(np.float64)


def split_at(
    middle: float | None,
    bounds: tuple[float, float] | None,
    value: Floats,
    rank: NDArray[np.intp],
    size: tuple[int, int],
    prompt: NDArray[np.intp] | None = None,
) -> tuple[Part, ...]:
    """Values above and below the middle of their bounds, by portrait; `size` is the number of portraits and prompts."""
    if middle is None or bounds is None:
        return ()
    parts: list[Part] = []
    for scale, beyond in ((bounds[1] - middle, value - middle), (middle - bounds[0], middle - value)):
        share = np.maximum(0.0, beyond) / scale
        by_prompt = None
        if prompt is not None:
            by_prompt = sums_by(rank * size[1] + prompt, share, size[0] * size[1]).reshape(size)
        sums, squares = sums_by(rank, share, size[0]), sums_by(rank, share * share, size[0])
        parts.append(Part(scale=scale, sums=sums, squares=squares, by_prompt=by_prompt))
    return tuple(parts)


def _rates(name: str, axis: Axis | None, *, every_cut: bool) -> Sequence[Rate]:
    if every_cut:
        return cuts(axis) if axis else ()
    return [rate for rate in rubric.load().rates.values() if rate.axis == name]


def by_unit(unit: NDArray[np.intp], mask: Flags, values: Floats) -> Floats:
    """Sum the values of these portraits within each unit."""
    inside = mask & (unit >= 0)
    return sums_by(unit[inside], values[inside], int(unit.max(initial=0)) + 1)


def sums_by(places: NDArray[np.intp], values: Floats, size: int) -> Floats:
    """The sum of the values at each of `size` places."""
    return np.bincount(places, weights=values, minlength=size).astype(np.float64)


NOISE = 1e-12
"""Differences below this are rounding errors: the smallest rate above 0 is one edit in at most a few million."""

DECIMALS = 12
"""Results are rounded to so many."""


def snapped(rates: Floats) -> Floats:
    """Rates within rounding of 0 or 1 as exactly 0 or 1."""
    rates = np.where(np.abs(rates) < NOISE, 0.0, rates)
    return np.where(np.abs(rates - 1.0) < NOISE, 1.0, rates)


def rounded(value: float) -> float:
    """The value without rounding errors; a zero has no sign."""
    return round(float(value), DECIMALS) + 0.0


def interval(value: float, low: float, high: float, *, confidence: float, method: str) -> Interval:
    """An interval whose numbers are the same on every processor."""
    return Interval(value=rounded(value), low=rounded(low), high=rounded(high), confidence=confidence, method=method)
