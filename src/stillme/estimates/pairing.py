"""Two arms of the same edits, set side by side: same portrait, prompt, editor and seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stillme.errors import UnknownName
from stillme.estimates.quantities import REASONS, Columns, Floats, Measured, Quantity, sums_by
from stillme.estimates.rows import Scores

Size = tuple[int, int]
"""Portraits and prompts."""

UNPAIRED = REASONS.index("not paired")
"""The place of that reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """One mean or rate under two arms, for every edit that has a value under both."""

    name: str
    editor: str
    judge: str
    arm: str
    against: str
    rank: NDArray[np.intp]
    """Per pair: the portrait."""
    prompt: NDArray[np.intp]
    before: Floats
    """Under `against`."""
    after: Floats
    """Under `arm`."""
    again: Floats
    """Under `against`, with a seed that `arm` was not run with: an untreated re-run. NaN where there is none."""
    unpaired: NDArray[np.int64]
    """Per portrait: edits with a value under one arm only."""
    bounds: tuple[float, float] | None
    is_rate: bool

    def change(self, size: Size) -> Quantity:
        """Value under the arm less value under the other, collapsed to portraits."""
        return self._collapse(self.after - self.before, np.ones(len(self.rank), dtype=np.bool_), size)

    def untreated(self, size: Size) -> Quantity:
        """What doing the same again changes: the re-run less the first run."""
        return self._collapse(self.again - self.before, ~np.isnan(self.again), size)

    def beyond_untreated(self, size: Size) -> Quantity:
        """The arm less the re-run. What made `before` what it was has no part in it."""
        return self._collapse(self.after - self.again, ~np.isnan(self.again), size)

    def _collapse(self, difference: Floats, kept: NDArray[np.bool_], size: Size) -> Quantity:
        portraits, prompts = size
        excluded = np.zeros((portraits, len(REASONS)), dtype=np.int64)
        excluded[:, UNPAIRED] = self.unpaired
        rank, value = self.rank[kept], difference[kept]
        widest = self.bounds[1] - self.bounds[0] if self.bounds else None
        cell = rank * prompts + self.prompt[kept]
        by_prompt = (
            sums_by(cell, value, portraits * prompts),
            np.bincount(cell, minlength=portraits * prompts).astype(np.float64),
        )
        return Quantity(
            name=self.name,
            editor=self.editor,
            arm=f"{self.arm} - {self.against}",
            judge=self.judge,
            sums=sums_by(rank, value, portraits),
            counts=np.bincount(rank, minlength=portraits).astype(np.float64),
            squares=sums_by(rank, value * value, portraits),
            excluded=excluded,
            bounds=None if widest is None else (-widest, widest),
            # A difference of two shares is no share.
            is_rate=False,
            by_prompt=(by_prompt[0].reshape(size), by_prompt[1].reshape(size)),
        )


def pair_arms(columns: Columns, scores: Sequence[Scores], *, arm: str, against: str) -> Iterator[Paired]:
    """Every mean and rate under both arms, for each editor and judge that has any."""
    for name in (arm, against):
        if name not in columns.edits.arms:
            known = columns.edits.arms
            raise UnknownName.among("arm", name, known, f"The audit has {', '.join(known)}.")
    seeds, cells = _codes(columns)
    measured = {(each.arm, each.editor, each.judge, each.name): each for each in columns.measured(scores)}
    for (of, editor, judge, name), treated in measured.items():
        other = measured.get((against, editor, judge, name))
        if of == arm and other:
            yield _pair(columns, treated, other, seeds, cells)


def _codes(columns: Columns) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Each row's seed, and what it is an edit of: portraits and prompt."""
    edits, order = columns.edits, columns.order
    seed = np.zeros(len(edits), dtype=np.intp)
    if edits.seed is not None:
        seed = np.unique(edits.seed[order], return_inverse=True)[1].astype(np.intp)
    second = np.zeros(len(edits), dtype=np.int64) if edits.second is None else edits.second[order] + np.int64(1)
    cell = columns.rank.astype(np.int64) * (len(edits.portraits) + 1) + second
    return seed, cell * max(1, len(edits.prompts)) + columns.prompt


def _pair(
    columns: Columns, treated: Measured, other: Measured, seeds: NDArray[np.intp], cells: NDArray[np.int64]
) -> Paired:
    count = int(seeds.max()) + 1 if len(seeds) else 1
    after_codes, after = _means(treated, cells * count + seeds)
    before_codes, before = _means(other, cells * count + seeds)
    codes, at_after, at_before = np.intersect1d(after_codes, before_codes, assume_unique=True, return_indices=True)
    lonely = np.setxor1d(after_codes, before_codes, assume_unique=True)
    prompts, people = max(1, len(columns.edits.prompts)), len(columns.portraits)
    return Paired(
        name=treated.name,
        editor=treated.editor,
        judge=treated.judge,
        arm=treated.arm,
        against=other.arm,
        rank=(codes // count // prompts // (people + 1)).astype(np.intp),
        prompt=(codes // count % prompts).astype(np.intp),
        before=before[at_before],
        after=after[at_after],
        again=_again(codes // count, before_codes // count, before, ~np.isin(before_codes, after_codes)),
        unpaired=np.bincount(lonely // count // prompts // (people + 1), minlength=people).astype(np.int64),
        bounds=treated.bounds,
        is_rate=treated.is_rate,
    )


def _means(measured: Measured, codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], Floats]:
    """The distinct codes of the edits that have a value, with the mean value of each."""
    counted = measured.counted
    known, where = np.unique(codes[counted], return_inverse=True)
    total = sums_by(where.astype(np.intp), measured.value[counted], len(known))
    return known, total / np.bincount(where, minlength=len(known))


def _again(cells: NDArray[np.int64], run: NDArray[np.int64], value: Floats, spare: NDArray[np.bool_]) -> Floats:
    """For each pair's cell, the mean of its spare runs."""
    known, where = np.unique(run[spare], return_inverse=True)
    if not len(known):
        return np.full(len(cells), np.nan)
    means = sums_by(where.astype(np.intp), value[spare], len(known)) / np.bincount(where, minlength=len(known))
    place = np.minimum(np.searchsorted(known, cells), len(known) - 1)
    return np.where(known[place] == cells, means[place], np.nan)
