"""Pairs of edits under two arms: same portrait, prompt, editor and seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stillme.core.errors import UnknownName
from stillme.core.types import Arm
from stillme.estimates.quantities import Columns, Exclusion, Floats, Measured, Quantity, SumsByPrompt, split_at, sums_by
from stillme.estimates.rows import ALL, Edits, EditState, Flags, RatingState, Scores

Size = tuple[int, int]
"""Portraits and prompts."""


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
    rerun: Floats
    """Under `against`, with a seed that `arm` was not run with: an untreated re-run. NaN where there is none."""
    unpaired: NDArray[np.int64]
    """Per portrait: edits with a value under one arm only."""
    bounds: tuple[float, float] | None
    is_rate: bool

    def change(self, size: Size) -> Quantity:
        """Value under the arm minus value under the other, collapsed to portraits."""
        return self._collapse(self.after - self.before, np.ones(len(self.rank), dtype=np.bool_), size)

    def untreated(self, size: Size) -> Quantity:
        """The change of an untreated re-run: the re-run minus the first run."""
        return self._collapse(self.rerun - self.before, ~np.isnan(self.rerun), size)

    def beyond_untreated(self, size: Size) -> Quantity:
        """The arm minus the re-run, which does not depend on how `before` was selected."""
        return self._collapse(self.after - self.rerun, ~np.isnan(self.rerun), size)

    def _collapse(self, difference: Floats, kept: NDArray[np.bool_], size: Size) -> Quantity:
        portraits, prompts = size
        rank, value = self.rank[kept], difference[kept]
        widest = self.bounds[1] - self.bounds[0] if self.bounds else None
        cell = rank * prompts + self.prompt[kept]
        counts = np.bincount(cell, minlength=portraits * prompts).astype(np.float64)
        return Quantity(
            name=self.name,
            editor=self.editor,
            arm=f"{self.arm} - {self.against}",
            judge=self.judge,
            sums=sums_by(rank, value, portraits),
            counts=np.bincount(rank, minlength=portraits).astype(np.float64),
            squares=sums_by(rank, value * value, portraits),
            excluded={Exclusion.NOT_PAIRED: self.unpaired},
            bounds=None if widest is None else (-widest, widest),
            # A difference of two rates is no rate.
            is_rate=False,
            by_prompt=SumsByPrompt(sums_by(cell, value, portraits * prompts).reshape(size), counts.reshape(size)),
            split=split_at(0.0, None if widest is None else (-widest, widest), value, rank, size, self.prompt[kept]),
        )


def pair_arms(columns: Columns, scores: Sequence[Scores], *, arm: str, against: str) -> Iterator[Paired]:
    """Every mean and rate under both arms, for each editor and judge that has any."""
    for name in (arm, against):
        if name not in columns.edits.arms:
            known = columns.edits.arms
            raise UnknownName.among("arm", name, known, f"The audit has {', '.join(known)}.")
    seeds, cells = _codes(columns)
    measured = list(columns.measured(scores))
    others = {(other.editor, other.judge, other.name): other for other in measured if other.arm == against}
    for treated in measured:
        other = others.get((treated.editor, treated.judge, treated.name))
        if treated.arm == arm and other:
            yield _pair(columns, treated, other, seeds, cells)


def rated_under_both(edits: Edits, score: Scores) -> Flags:
    """Rows of the feature and the baseline arm whose request was rated under both."""
    columns = (edits.portrait, edits.prompt, edits.editor, edits.second, edits.seed)
    cells = np.stack([column for column in columns if column is not None])
    request = np.unique(cells, axis=1, return_inverse=True)[1].reshape(-1)
    rated = (score.state == RatingState.RATED) & (edits.state == EditState.EDITED)
    arms = [edits.arms.index(name) for name in (Arm.BASELINE, Arm.FEATURE)]
    before, after = (np.isin(request, request[rated & (edits.arm == code)]) for code in arms)
    return rated & before & after & np.isin(edits.arm, arms)


def pooled(pairs: Sequence[Paired]) -> Iterator[Paired]:
    """The pairs of all editors together, by judge and quantity; every pair is still two edits of one editor."""
    together: dict[tuple[str, str], list[Paired]] = {}
    for pair in pairs:
        together.setdefault((pair.judge, pair.name), []).append(pair)
    for parts in together.values():
        yield replace(
            parts[0],
            editor=ALL,
            rank=np.concatenate([part.rank for part in parts]),
            prompt=np.concatenate([part.prompt for part in parts]),
            before=np.concatenate([part.before for part in parts]),
            after=np.concatenate([part.after for part in parts]),
            rerun=np.concatenate([part.rerun for part in parts]),
            unpaired=np.sum([part.unpaired for part in parts], axis=0),
        )


def _codes(columns: Columns) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Each row's seed, and its cell: portraits and prompt."""
    edits, order = columns.edits, columns.order
    seed = np.zeros(len(order), dtype=np.intp)
    if edits.seed is not None:
        seed = np.unique(edits.seed[order], return_inverse=True)[1].astype(np.intp)
    second = np.zeros(len(order), dtype=np.int64) if edits.second is None else edits.second[order] + np.int64(1)
    cell = columns.rank.astype(np.int64) * (len(edits.portraits) + 1) + second
    return seed, cell * max(1, len(edits.prompts)) + columns.prompt


def _pair(
    columns: Columns, treated: Measured, other: Measured, seeds: NDArray[np.intp], cells: NDArray[np.int64]
) -> Paired:
    count = int(seeds.max()) + 1 if len(seeds) else 1
    after_codes, after = _means(treated, cells * count + seeds)
    before_codes, before = _means(other, cells * count + seeds)
    codes, at_after, at_before = np.intersect1d(after_codes, before_codes, assume_unique=True, return_indices=True)
    unpaired = np.setxor1d(after_codes, before_codes, assume_unique=True)
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
        rerun=_rerun(codes // count, before_codes // count, before, ~np.isin(before_codes, after_codes)),
        unpaired=np.bincount(unpaired // count // prompts // (people + 1), minlength=people).astype(np.int64),
        bounds=treated.bounds,
        is_rate=treated.is_rate,
    )


def _means(measured: Measured, codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], Floats]:
    """The distinct codes of the edits that have a value, with the mean value of each."""
    counted = measured.counted
    return _mean_by(codes[counted], measured.value[counted])


def _mean_by(codes: NDArray[np.int64], values: Floats) -> tuple[NDArray[np.int64], Floats]:
    distinct, place = np.unique(codes, return_inverse=True)
    size = len(distinct)
    return distinct, sums_by(place.astype(np.intp), values, size) / np.bincount(place, minlength=size)


def _rerun(cells: NDArray[np.int64], run: NDArray[np.int64], value: Floats, spare: NDArray[np.bool_]) -> Floats:
    """For each pair's cell, the mean of its spare runs."""
    spare_cells, means = _mean_by(run[spare], value[spare])
    if not len(spare_cells):
        return np.full(len(cells), np.nan)
    place = np.minimum(np.searchsorted(spare_cells, cells), len(spare_cells) - 1)
    return np.where(spare_cells[place] == cells, means[place], np.nan)
