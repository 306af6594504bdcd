"""Who is compared with whom, and which portraits are one unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from stillme.core.errors import UnknownName
from stillme.core.types import Scope, Settings
from stillme.estimates.quantities import Columns
from stillme.estimates.rows import Flags

Places = NDArray[np.intp]

MIN_SETS = 6
"""Matched sets below which portraits are not paired."""

MIN_COMPLETE = 0.8
"""The share of matched sets that must hold every level."""

REST = "rest"
"""The other side of a contrast where no reference level is declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideComparison:
    """One side, or one side against another."""

    scope: Scope
    group: str
    members: Flags
    """Per portrait."""
    against: Flags | None = None

    @property
    def everyone(self) -> Flags:
        """The portraits of either side."""
        return self.members if self.against is None else self.members | self.against


@dataclass(frozen=True, slots=True, kw_only=True)
class PermutationDesign:
    """How labels may be permuted if groups do not matter."""

    unit: Places
    """Per portrait: the unit that gets one label, or -1."""
    level: Places
    """Per unit: its label."""
    within: Places
    """Per unit: the block inside which labels are permuted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is compared for one factor, or for everyone."""

    factor: str
    unit: Places
    """Per portrait: its block, or -1 where the portrait has no part in this plan. Its portraits on one side of a
    comparison are one unit; where a block is on both sides, what it shares cancels."""
    names: tuple[str, ...]
    """The blocks' names."""
    noun: str
    """What a unit is."""
    paired: bool
    """Whether blocks hold several levels, so that what they share cancels in a contrast."""
    comparisons: tuple[SideComparison, ...]
    levels: tuple[str, ...] = ()
    """Levels with enough units to be compared; the first comparisons are theirs, in this order."""
    too_small: Mapping[str, Flags]
    """Levels with one unit only, which have no spread to estimate."""
    permutation: PermutationDesign | None = None

    def units(self, portraits: Flags) -> int:
        """How many units these portraits make."""
        return len(np.unique(self.unit[portraits & (self.unit >= 0)]))


def everyone(columns: Columns) -> Plan:
    """All portraits as one group."""
    members = np.ones(len(columns.portraits), dtype=np.bool_)
    unit, names = _blocks(columns, members)
    enough = len(names) >= 2
    return Plan(
        factor="",
        unit=unit,
        names=names,
        noun=_noun(len(names), len(members)),
        paired=False,
        comparisons=(SideComparison(scope="all", group="", members=members),) if enough else (),
        too_small={} if enough else {"": members},
    )


def by_factor(columns: Columns, factor: str, settings: Settings) -> Plan:
    """Each level of a factor, and each against the reference level or against the rest."""
    reference = settings.reference.get(factor)
    levels, codes_by_portrait = columns.edits.levels(factor)
    if not levels:
        known = sorted({name for portrait in columns.edits.portraits for name in portrait.attributes})
        raise UnknownName.among("factor", factor, known, f"No portrait has it; they have {', '.join(known) or 'none'}.")
    if reference is not None and reference not in levels:
        raise UnknownName.among("reference level", reference, levels, f"{factor} has {', '.join(levels)}.")
    codes = codes_by_portrait[columns.places].astype(np.intp)
    unit, names = _units(columns, codes, settings.matched_with(factor))
    cells = _cells(unit, codes)
    enough = [code for code in range(len(levels)) if len(np.unique(unit[codes == code])) >= 2]
    part = np.isin(codes, enough)
    several = _levels_per_block(unit, codes, part) > 1
    return Plan(
        factor=factor,
        unit=np.where(part, unit, -1),
        names=names,
        noun=_noun(len(np.unique(cells[codes >= 0])), int(np.count_nonzero(codes >= 0))),
        paired=int(np.count_nonzero(several)) >= MIN_SETS,
        levels=tuple(levels[code] for code in enough),
        too_small={name: codes == code for code, name in enumerate(levels) if code not in enough},
        comparisons=_comparisons(levels, codes, enough, reference),
        permutation=_permutation(unit, codes, enough, several) if len(enough) > 1 else None,
    )


def _noun(units: int, portraits: int) -> str:
    """Several portraits of a unit show one identity."""
    return "portraits" if units == portraits else "identities"


def _comparisons(
    levels: tuple[str, ...], codes: Places, enough: list[int], reference: str | None
) -> tuple[SideComparison, ...]:
    groups = [SideComparison(scope="group", group=levels[code], members=codes == code) for code in enough]
    if len(enough) < 2:
        return tuple(groups)
    contrasts: list[SideComparison] = []
    for code in enough:
        if levels[code] == reference:
            continue
        other = codes == levels.index(reference) if reference else np.isin(codes, enough) & (codes != code)
        if other.sum() >= 2:
            name = f"{levels[code]} - {reference or REST}"
            contrasts.append(SideComparison(scope="contrast", group=name, members=codes == code, against=other))
    return (*groups, *contrasts)


def _units(columns: Columns, codes: Places, others: tuple[str, ...]) -> tuple[Places, tuple[str, ...]]:
    """Each portrait's block; where portraits have none, their matched set, alike in all other factors."""
    part = codes >= 0
    block, names = _blocks(columns, part)
    if len(names) == np.count_nonzero(part):
        return _matched_sets(columns, codes, part, others) or (block, names)
    return block, names


def _matched_sets(
    columns: Columns, codes: Places, part: Flags, others: tuple[str, ...]
) -> tuple[Places, tuple[str, ...]] | None:
    """Sets of portraits that are alike in the other factors and hold each level once; None where there are none.

    Factors that are not crossed with this one, such as a measured tone, are left out of the matching.
    """
    levels = len(np.unique(codes[part]))
    for size in range(len(others), 0, -1):
        for chosen in combinations(others, size):
            names: dict[str, int] = {}
            unit = np.full(len(codes), -1, dtype=np.intp)
            members: list[int] = np.flatnonzero(part).tolist()
            for place in members:
                alike = "/".join(columns.portraits[place].attributes.get(other, "") for other in chosen)
                unit[place] = names.setdefault(alike, len(names))
            cells = _cells(unit, codes)[part]
            complete = np.count_nonzero(_levels_per_block(unit, codes, part) == levels)
            once = len(np.unique(cells)) == len(cells)
            if levels > 1 and once and len(names) >= MIN_SETS and complete >= MIN_COMPLETE * len(names):
                return unit, tuple(names)
    return None


def _permutation(unit: Places, codes: Places, enough: list[int], several: Flags) -> PermutationDesign:
    """Portraits of one block and level get one label; labels are permuted within blocks that hold several.

    Blocks that hold one level each are permuted among one another.
    """
    part = np.isin(codes, enough)
    cells, first, place = np.unique(_cells(unit, codes)[part], return_index=True, return_inverse=True)
    blocks = cells // (int(codes.max()) + 1)
    by_portrait = np.full(len(codes), -1, dtype=np.intp)
    by_portrait[part] = place
    return PermutationDesign(
        unit=by_portrait,
        level=np.searchsorted(np.array(enough), codes[part][first]),
        within=np.unique(np.where(several[blocks], blocks, -1), return_inverse=True)[1].astype(np.intp),
    )


def _cells(unit: Places, codes: Places) -> Places:
    """A number for each block and level."""
    return unit * (int(codes.max()) + 1) + codes


def _levels_per_block(unit: Places, codes: Places, part: Flags) -> Places:
    """How many different levels each block holds."""
    width = int(codes.max()) + 1
    cells = np.unique(_cells(unit, codes)[part])
    return np.bincount(cells // width, minlength=int(unit.max(initial=0)) + 1)


def _blocks(columns: Columns, part: Flags) -> tuple[Places, tuple[str, ...]]:
    """Each portrait's block, -1 outside `part`; a portrait without a block is one by itself."""
    names: dict[tuple[str, str], int] = {}
    block = np.full(len(columns.portraits), -1, dtype=np.intp)
    for place, portrait in enumerate(columns.portraits):
        if part[place]:
            own = (portrait.block, "") if portrait.block else ("", portrait.id)
            block[place] = names.setdefault(own, len(names))
    return block, tuple(f"{name}/{own}" for name, own in names)
