"""Into what? How much more often the edits of a group are read as something than their unedited portraits are.

A reader misreads unedited pictures, too, so every portrait is its own control: what is counted is the share of its
edits that are read as a target less the share of its control readings. Without a change that is zero for any reader,
however it errs; with one it is attenuated and never inflated. Intervals are those of a paired difference of rates
(MOVER with the units' correlation), tests flip the signs of the units' differences, and Holm corrects over groups,
targets and editors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stillme.core.types import Interval, NotEstimable
from stillme.estimates.design import Plan, SideComparison
from stillme.estimates.headlines import Word, word_for
from stillme.estimates.intervals import Batch
from stillme.estimates.permutation import holm, sign_flip_p
from stillme.estimates.quantities import Floats, Quantity
from stillme.estimates.rows import Flags

SMALLEST = 0.05
"""The smallest shift that matters: that of every rate."""
MAX_UNSURE = 0.2
MAX_UNSURE_APART = 0.1
"""Shares of readings that cannot tell, and by how much those of edits and controls may differ: conventions. Beyond them
the shares that are left are of other pictures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tallies:
    """What one reader saw of each portrait, by target: sums of shares, so that every edit counts once."""

    editor: str
    arm: str
    judge: str
    axis: str
    targets: tuple[str, ...]
    read: Floats
    """Portraits × targets: edits that are read as the target."""
    edits: Floats
    """Per portrait: edits with a reading, those that cannot tell included."""
    unsure: Floats
    control_read: Floats
    controls: Floats
    control_unsure: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Portraits whose shift is asked for, and towards what."""

    name: str
    members: Flags
    targets: tuple[str, ...]
    pooled: bool = False
    """Whether it joins several groups: the question with the most portraits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """How much more often a group's edits are read as the target than its unedited portraits."""

    editor: str
    arm: str
    judge: str
    axis: str
    group: str
    """The label of the portraits; `not X` for all others."""
    target: str
    """What their edits are read as."""
    outcome: Interval | NotEstimable
    before: float
    """Share of control readings."""
    after: float
    """Share of edits."""
    unsure: float
    """Share of edits whose reading cannot tell."""
    units: int
    """Portraits, or identities where several portraits show one."""
    edits: int
    p: float | None
    """Of sign flips over units."""
    holm: float | None
    """The same after Holm's correction over groups, targets and editors."""
    word: Word | None
    """What interval and test say of a shift of 5 points; empty with fewer than five units."""
    pooled: bool
    """Whether it is one of the questions over several groups."""


def shifts(
    tallies: Sequence[Tallies], groups: Mapping[str, Sequence[Group]], blocks: NDArray[np.intp], confidence: float
) -> list[Shift]:
    """Every group's shift towards each of its targets; `groups` are by axis, `blocks` the identity of each portrait."""
    found = [shift for tally in tallies for shift in _of(tally, groups.get(tally.axis, ()), blocks, confidence)]
    tested = [shift for shift, _ in found if shift.p is not None]
    smallest = [least for shift, least in found if shift.p is not None]
    corrected = iter(holm([shift.p for shift in tested if shift.p is not None], smallest))
    return [_with_word(shift, next(corrected) if shift.p is not None else None) for shift, _ in found]


def _with_word(shift: Shift, corrected: float | None) -> Shift:
    word = word_for(shift.outcome, p=corrected, smallest=SMALLEST, units=shift.units)
    return replace(shift, holm=corrected, word=word)


def _of(
    tally: Tallies, groups: Sequence[Group], blocks: NDArray[np.intp], confidence: float
) -> Iterator[tuple[Shift, float]]:
    """Each shift with the smallest p-value that its test can have."""
    seen = (tally.edits > 0) & (tally.controls > 0)
    if not groups:
        return
    batch = _batch(tally, blocks, seen)
    asked = [(group, target) for group in groups for target in group.targets]
    for group, target in asked:
        place, mask = tally.targets.index(target), group.members & seen
        units = np.unique(blocks[mask])
        after = _share(tally.read[:, place], tally.edits, mask)
        before = _share(tally.control_read[:, place], tally.controls, mask)
        unsure = _share(tally.unsure, tally.edits, mask)
        shift = Shift(
            editor=tally.editor,
            arm=tally.arm,
            judge=tally.judge,
            axis=tally.axis,
            group=group.name,
            target=target,
            outcome=NotEstimable(reason=""),
            before=before,
            after=after,
            unsure=unsure,
            units=len(units),
            edits=round(float(tally.edits[mask].sum())),
            p=None,
            holm=None,
            word=None,
            pooled=group.pooled,
        )
        reason = _unreadable(unsure, _share(tally.control_unsure, tally.controls, mask), len(units))
        if reason:
            yield replace(shift, outcome=NotEstimable(reason=reason)), 1.0
            continue
        outcome = batch.outcomes(_comparison(mask), confidence)[place]
        p, least = sign_flip_p(_differences(tally, place, blocks, mask))
        yield replace(shift, outcome=outcome, p=p), least


def _unreadable(unsure: float, control: float, units: int) -> str:
    if units < 2:
        return "fewer than two portraits have readings of edits and of the unedited picture"
    if max(unsure, control) > MAX_UNSURE:
        return f"the reader cannot tell in {max(unsure, control):.0%} of readings, more than {MAX_UNSURE:.0%}"
    if abs(unsure - control) > MAX_UNSURE_APART:
        return (
            f"the reader cannot tell in {unsure:.0%} of edits and {control:.0%} of unedited pictures, more than "
            f"{100 * MAX_UNSURE_APART:.0f} points apart"
        )
    return ""


def _batch(tally: Tallies, blocks: NDArray[np.intp], seen: Flags) -> Batch:
    """Edits and controls as the two sides of one plan: portraits stand in it twice, in the same block.

    Each portrait counts alike on both sides, however many of its edits could be read: else the sides would be of
    different people.
    """
    each = float(tally.edits[seen].mean()) if seen.any() else 0.0
    controls = float(tally.controls[seen].mean()) if seen.any() else 0.0
    counts = np.concatenate([np.where(seen, each, 0.0), np.where(seen, controls, 0.0)])
    quantities = [
        Quantity(
            name=target,
            editor=tally.editor,
            arm=tally.arm,
            judge=tally.judge,
            sums=(sums := counts * _shares(tally, place)),
            counts=counts,
            squares=sums,
            excluded={},
            bounds=(0.0, 1.0),
            is_rate=True,
        )
        for place, target in enumerate(tally.targets)
    ]
    members = np.concatenate([seen, np.zeros_like(seen)])
    plan = Plan(
        factor="",
        unit=np.where(np.concatenate([seen, seen]), np.concatenate([blocks, blocks]), -1),
        names=tuple(map(str, range(int(blocks.max(initial=-1)) + 1))),
        noun="portraits" if len(np.unique(blocks)) == len(blocks) else "identities",
        paired=True,
        comparisons=(
            SideComparison(scope="all", group="", members=members),
            SideComparison(scope="all", group="", members=np.concatenate([np.zeros_like(seen), seen])),
        ),
        too_small={},
    )
    return Batch(plan, quantities, sample=False)


def _shares(tally: Tallies, place: int) -> Floats:
    """Of edits, then of controls, by portrait."""
    return np.concatenate(
        [
            _divided(tally.read[:, place], tally.edits),
            _divided(tally.control_read[:, place], tally.controls),
        ]
    )


def _comparison(mask: Flags) -> SideComparison:
    nothing = np.zeros_like(mask)
    return SideComparison(
        scope="contrast",
        group="",
        members=np.concatenate([mask, nothing]),
        against=np.concatenate([nothing, mask]),
    )


def _differences(tally: Tallies, place: int, blocks: NDArray[np.intp], mask: Flags) -> Floats:
    """Per unit: what its edits are read as, less what its unedited pictures are."""
    each = _divided(tally.read[:, place], tally.edits) - _divided(tally.control_read[:, place], tally.controls)
    return np.bincount(blocks[mask], weights=each[mask]).astype(np.float64)


def _share(sums: Floats, counts: Floats, mask: Flags) -> float:
    """The mean over portraits of their shares."""
    return float(_divided(sums, counts)[mask].mean()) if mask.any() else 0.0


def _divided(sums: Floats, counts: Floats) -> Floats:
    return np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)
