"""Who is compared with whom, and what is resampled together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stillme.errors import UnknownName
from stillme.estimates.quantities import Columns
from stillme.estimates.rows import Flags
from stillme.types import Scope

Places = NDArray[np.intp]

REST = "rest"
"""The other side of a contrast where no reference level is declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One side, or one side against another."""

    scope: Scope
    group: str
    members: Flags
    """Per portrait."""
    against: Flags | None = None
    scale: Literal["difference", "log ratio"] = "difference"
    """How the two sides are compared."""

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
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is compared and resampled for one factor, or for everyone."""

    factor: str
    unit: Places
    """Per portrait: the unit that it is resampled with, or -1 where the portrait has no part in this plan."""
    strata: tuple[Places, ...]
    """Units that are resampled together, each stratum by itself."""
    names: tuple[str, ...]
    """The units' names."""
    noun: str
    """What a unit is, for the method's description."""
    paired: bool
    comparisons: tuple[Comparison, ...]
    levels: tuple[str, ...] = ()
    """Levels with enough portraits to be compared; the first comparisons are theirs, in this order."""
    too_small: Mapping[str, Flags]
    """Levels with one portrait or one block only, which have no spread to estimate."""
    permutation: PermutationDesign | None = None


def everyone(columns: Columns) -> Plan:
    """All portraits as one group."""
    members = np.ones(len(columns.portraits), dtype=np.bool_)
    block, names = _blocks(columns, members)
    enough = len(names) >= 2
    return Plan(
        factor="",
        unit=block,
        strata=(np.arange(len(names), dtype=np.intp),),
        names=names,
        noun="portraits" if len(names) == len(members) else "blocks of portraits",
        paired=False,
        comparisons=(Comparison(scope="all", group="", members=members),) if enough else (),
        too_small={} if enough else {"": members},
    )


def by_factor(columns: Columns, factor: str, reference: str | None) -> Plan:
    """Each level of a factor, and each against the reference level or against the rest."""
    levels, codes_by_portrait = columns.edits.levels(factor)
    if not levels:
        known = sorted({name for portrait in columns.edits.portraits for name in portrait.attributes})
        raise UnknownName.among("factor", factor, known, f"No portrait has it; they have {', '.join(known) or 'none'}.")
    if reference is not None and reference not in levels:
        raise UnknownName.among("reference level", reference, levels, f"{factor} has {', '.join(levels)}.")
    codes = codes_by_portrait[columns.places].astype(np.intp)
    large = [code for code in range(len(levels)) if np.count_nonzero(codes == code) >= 2]
    unit, names, paired, noun = _units(columns, codes, large)
    enough = [code for code in large if len(np.unique(unit[codes == code])) >= 2]
    strata = (
        (np.arange(len(names), dtype=np.intp),) if paired else tuple(np.unique(unit[codes == code]) for code in enough)
    )
    unit = np.where(np.isin(codes, enough), unit, -1)
    return Plan(
        factor=factor,
        unit=unit,
        strata=strata,
        names=names,
        noun=noun,
        paired=paired,
        levels=tuple(levels[code] for code in enough),
        too_small={name: codes == code for code, name in enumerate(levels) if code not in enough},
        comparisons=_comparisons(levels, codes, enough, reference),
        permutation=_permutation(columns, codes, enough),
    )


def _comparisons(
    levels: tuple[str, ...], codes: Places, enough: list[int], reference: str | None
) -> tuple[Comparison, ...]:
    groups = [Comparison(scope="group", group=levels[code], members=codes == code) for code in enough]
    if len(enough) < 2:
        return tuple(groups)
    contrasts: list[Comparison] = []
    for code in enough:
        if levels[code] == reference:
            continue
        other = codes == levels.index(reference) if reference else np.isin(codes, enough) & (codes != code)
        if other.sum() >= 2:
            name = f"{levels[code]} - {reference or REST}"
            contrasts.append(Comparison(scope="contrast", group=name, members=codes == code, against=other))
    return (*groups, *contrasts)


def _units(columns: Columns, codes: Places, large: list[int]) -> tuple[Places, tuple[str, ...], bool, str]:
    """Blocks that hold every level are resampled whole, which pairs the contrast.

    Blocks that lie within one level are resampled whole too: their portraits share what makes them a
    block, and so are not independent. Otherwise the portrait is the unit.
    """
    part = np.isin(codes, large)
    block, names = _blocks(columns, part)
    levels_per_block = _levels_per_block(block, codes, part, len(names))
    if len(large) > 1 and len(names) > 1 and (levels_per_block == len(large)).all():
        return block, names, True, "blocks of portraits, paired"
    if (levels_per_block == 1).all():
        noun = "portraits" if len(names) == part.sum() else "blocks of portraits"
        return block, names, False, noun
    ids = tuple(portrait.id for portrait in columns.portraits)
    return np.where(part, np.arange(len(ids)), -1), ids, False, "portraits"


def _permutation(columns: Columns, codes: Places, enough: list[int]) -> PermutationDesign | None:
    if len(enough) < 2:
        return None
    part = np.isin(codes, enough)
    block, names = _blocks(columns, part)
    label = np.searchsorted(np.array(enough), codes)
    if (_levels_per_block(block, codes, part, len(names)) == 1).all():
        # A factor that never varies inside a block can only be permuted over whole blocks.
        first = np.unique(block[part], return_index=True)[1]
        first = np.flatnonzero(part)[first]
        within = np.zeros(len(names), dtype=np.intp)
        return PermutationDesign(unit=block, level=label[first], within=within, names=names)
    places = np.flatnonzero(part)
    portraits = [portrait for portrait, inside in zip(columns.portraits, part, strict=True) if inside]
    known = {name: place for place, name in enumerate(sorted({portrait.block for portrait in portraits}))}
    unit = np.full(len(codes), -1, dtype=np.intp)
    unit[places] = np.arange(len(places))
    return PermutationDesign(
        unit=unit,
        level=label[places],
        within=np.array([known[portrait.block] for portrait in portraits], dtype=np.intp),
        names=tuple(portrait.id for portrait in portraits),
    )


def _levels_per_block(block: Places, codes: Places, part: Flags, blocks: int) -> Places:
    """How many different levels each block holds."""
    width = int(codes.max()) + 1
    cells = np.unique(block[part] * width + codes[part])
    return np.bincount(cells // width, minlength=blocks)


def _blocks(columns: Columns, part: Flags) -> tuple[Places, tuple[str, ...]]:
    """Each portrait's block, -1 outside `part`; a portrait without a block is one by itself."""
    names: dict[tuple[str, str], int] = {}
    block = np.full(len(columns.portraits), -1, dtype=np.intp)
    for place, portrait in enumerate(columns.portraits):
        if part[place]:
            own = (portrait.block, "") if portrait.block else ("", portrait.id)
            block[place] = names.setdefault(own, len(names))
    return block, tuple(f"{name}/{own}" for name, own in names)
