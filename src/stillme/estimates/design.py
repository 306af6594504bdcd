"""Who is compared with whom, and what is resampled together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stillme.errors import UnknownName
from stillme.estimates.quantities import Columns
from stillme.estimates.rows import Flags
from stillme.estimates.settings import Settings
from stillme.types import Scope

Places = NDArray[np.intp]

MIN_SETS = 6
"""Matched sets below which portraits are not paired: fewer sign flips than of six cannot reject at 5 %."""

MIN_COMPLETE = 0.8
"""The share of matched sets that must hold every level."""

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
    for_spread: bool = False
    """Whether it is here only because the spread within groups is pooled over it; nobody reads its interval."""

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
    person: Places | None = None
    """Per portrait: whom it shows; None where all show different people."""
    comparisons: tuple[Comparison, ...]
    levels: tuple[str, ...] = ()
    """Levels with enough portraits to be compared; the first comparisons are theirs, in this order."""
    too_small: Mapping[str, Flags]
    """Levels with one portrait or one block only, which have no spread to estimate."""
    permutation: PermutationDesign | None = None

    def people(self, portraits: Flags) -> int:
        """How many different people these portraits show."""
        inside = portraits & (self.unit >= 0)
        return int(np.count_nonzero(inside)) if self.person is None else len(np.unique(self.person[inside]))


def everyone(columns: Columns, settings: Settings) -> Plan:
    """All portraits as one group."""
    members = np.ones(len(columns.portraits), dtype=np.bool_)
    unit, names = _clusters(columns, members, settings.design_factors)
    enough = len(names) >= 2
    return Plan(
        factor="",
        unit=unit,
        strata=(np.arange(len(names), dtype=np.intp),),
        names=names,
        noun="portraits" if len(names) == len(members) else "blocks of portraits",
        paired=False,
        person=_person(columns, unit, settings.design_factors),
        comparisons=(Comparison(scope="all", group="", members=members),) if enough else (),
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
    large = [code for code in range(len(levels)) if np.count_nonzero(codes == code) >= 2]
    units = _units(columns, codes, large, factor, settings)
    unit = units.unit
    enough = [code for code in large if len(np.unique(unit[codes == code])) >= 2]
    strata = (
        (np.arange(len(units.names), dtype=np.intp),)
        if units.paired
        else tuple(np.unique(unit[codes == code]) for code in enough)
    )
    return Plan(
        factor=factor,
        unit=np.where(np.isin(codes, enough), unit, -1),
        strata=strata,
        names=units.names,
        noun=units.noun,
        paired=units.paired,
        person=_person(columns, unit, settings.design_factors),
        levels=tuple(levels[code] for code in enough),
        too_small={name: codes == code for code, name in enumerate(levels) if code not in enough},
        comparisons=_comparisons(levels, codes, enough, reference),
        permutation=_permutation(columns, codes, enough, units),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Units:
    """What is resampled together for a factor, and inside what labels are permuted."""

    unit: Places
    names: tuple[str, ...]
    noun: str
    paired: bool = False
    """Whether a unit holds every level, so that what it shares cancels in a contrast."""
    whole: bool = False
    """Whether labels belong to whole units, because no unit has two."""


def _person(columns: Columns, unit: Places, factors: tuple[str, ...]) -> Places | None:
    """Whom each portrait shows: portraits of a unit that are alike in all declared factors count as one person.

    Such are several pictures of somebody. Matched portraits differ in a factor, so they show different people.
    """
    people: dict[tuple[int | str, ...], int] = {}
    person = np.full(len(unit), -1, dtype=np.intp)
    inside: list[int] = np.flatnonzero(unit >= 0).tolist()
    for place in inside:
        attributes = columns.portraits[place].attributes
        labels = (int(unit[place]), *(attributes.get(factor, "") for factor in factors))
        person[place] = people.setdefault(labels, len(people))
    return person if len(people) < len(inside) else None


def _units(columns: Columns, codes: Places, large: list[int], factor: str, settings: Settings) -> _Units:
    """Match the levels of a factor on all the other factors; else on blocks; else take portraits by themselves.

    A block that repeats its cell of the design is a cluster, such as several pictures of a person: if it lies within
    one level it is resampled whole, because its portraits are not independent.
    """
    part = np.isin(codes, large)
    ids = tuple(portrait.id for portrait in columns.portraits)
    cluster, names = _clusters(columns, part, settings.design_factors)
    no_clusters = len(names) == part.sum()
    if no_clusters and len(large) > 1:
        sets = _matched_sets(columns, codes, part, large, settings.matched_with(factor))
        if sets is not None:
            return _Units(unit=sets[0], names=sets[1], noun="sets of matched portraits", paired=True)
    block, block_names = _blocks(columns, part)
    levels_per_block = _levels_per_block(block, codes, part, len(block_names))
    if len(large) > 1 and len(block_names) > 1 and (levels_per_block == len(large)).all():
        return _Units(unit=block, names=block_names, noun="blocks of portraits, paired", paired=True)
    if not no_clusters and (_levels_per_block(cluster, codes, part, len(names)) == 1).all():
        return _Units(unit=cluster, names=names, noun="blocks of portraits", whole=True)
    return _Units(unit=np.where(part, np.arange(len(ids)), -1), names=ids, noun="portraits")


def _matched_sets(
    columns: Columns, codes: Places, part: Flags, large: list[int], others: tuple[str, ...]
) -> tuple[Places, tuple[str, ...]] | None:
    """Sets of portraits that are alike in the other factors and hold each level once; None where there are none.

    Factors that are not crossed with this one, such as a measured tone, are left out of the matching.
    """
    portraits = columns.portraits
    for size in range(len(others), 0, -1):
        for chosen in combinations(others, size):
            names: dict[str, int] = {}
            unit = np.full(len(codes), -1, dtype=np.intp)
            members: list[int] = np.flatnonzero(part).tolist()
            for place in members:
                alike = "/".join(portraits[place].attributes.get(other, "") for other in chosen)
                unit[place] = names.setdefault(alike, len(names))
            cells = unit[part] * (int(codes.max()) + 1) + codes[part]
            complete = np.count_nonzero(_levels_per_block(unit, codes, part, len(names)) == len(large))
            once = len(np.unique(cells)) == len(cells)
            if once and len(names) >= MIN_SETS and complete >= MIN_COMPLETE * len(names):
                return unit, tuple(names)
    return None


def _permutation(columns: Columns, codes: Places, enough: list[int], units: _Units) -> PermutationDesign | None:
    if len(enough) < 2:
        return None
    part = np.isin(codes, enough)
    label = np.searchsorted(np.array(enough), codes)
    if units.whole:
        # A factor that never varies inside a cluster can only be permuted over whole clusters.
        kept, first = np.unique(units.unit[part], return_index=True)
        first = np.flatnonzero(part)[first]
        place = np.full(len(units.names), -1, dtype=np.intp)
        place[kept] = np.arange(len(kept))
        return PermutationDesign(
            unit=np.where(part, place[units.unit], -1),
            level=label[first],
            within=np.zeros(len(kept), dtype=np.intp),
            names=tuple(np.array(units.names)[kept].tolist()),
        )
    places = np.flatnonzero(part)
    portraits = [portrait for portrait, inside in zip(columns.portraits, part, strict=True) if inside]
    if units.paired:
        within = np.unique(units.unit[places], return_inverse=True)[1].astype(np.intp)
    else:
        known = {name: place for place, name in enumerate(sorted({portrait.block for portrait in portraits}))}
        within = np.array([known[portrait.block] for portrait in portraits], dtype=np.intp)
        if (_levels_per_block(within, label[places], np.ones(len(within), dtype=np.bool_), len(known)) == 1).all():
            # Blocks that are cells of the design hold one level each: labels are permuted over all portraits.
            within = np.zeros(len(within), dtype=np.intp)
    unit = np.full(len(codes), -1, dtype=np.intp)
    unit[places] = np.arange(len(places))
    return PermutationDesign(
        unit=unit, level=label[places], within=within, names=tuple(portrait.id for portrait in portraits)
    )


def _clusters(columns: Columns, part: Flags, factors: tuple[str, ...]) -> tuple[Places, tuple[str, ...]]:
    """Each portrait's cluster, -1 outside `part`: its block where blocks repeat a cell of the design, else itself.

    A block that is one cell of the declared factors, such as a gender × age cell with one portrait of each race, is a
    fixed stratum: results are about these cells, and nothing could tell what a cell shares from what its factors do.
    """
    block, names = _blocks(columns, part)
    if len(names) == part.sum() or not _are_cells(columns, part, block, factors):
        return block, names
    ids = tuple(portrait.id for portrait in columns.portraits)
    places = np.full(len(ids), -1, dtype=np.intp)
    places[part] = np.arange(np.count_nonzero(part))
    return places, tuple(name for name, inside in zip(ids, part, strict=True) if inside)


def _are_cells(columns: Columns, part: Flags, block: Places, factors: tuple[str, ...]) -> bool:
    """Whether each block is one cell of the factors that do not vary inside blocks, and others do vary there."""
    values = {
        factor: np.array([portrait.attributes.get(factor, "") for portrait in columns.portraits])[part]
        for factor in factors
    }
    inside, blocks = block[part], len(np.unique(block[part]))
    constant = [
        factor
        for factor, column in values.items()
        if len(set(zip(inside.tolist(), column.tolist(), strict=True))) == blocks
    ]
    if not constant or len(constant) == len(factors):
        return False
    cells = set(zip(*(values[factor].tolist() for factor in constant), strict=True))
    return len(cells) == blocks


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
