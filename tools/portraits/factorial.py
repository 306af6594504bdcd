# SPDX-License-Identifier: GPL-3.0-or-later
"""The factorial set: every preset in every gender × age cell, matched within the cell."""

from collections.abc import Iterator
from dataclasses import dataclass

from .parameters import Parameters, Quality
from .presets import AGES, CELLS, PRESENTATIONS, PRESETS, Cell, Draft, make_person


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A portrait of the set before it is rendered."""

    id: str
    preset: str
    cell: Cell
    identity: int
    """0 is the first identity of the cell, 1 the next, …"""
    parameters: Parameters


def identity_seed(cell: Cell, identity: int) -> int:
    """The seed shared by a cell's presets. Seeds of different cells and identities never meet."""
    index = AGES.index(cell.age) * 2 + list(PRESENTATIONS).index(cell.gender_presentation)
    return 1000 * (identity + 1) + index


def plan_set(identities: int, quality: Quality) -> Iterator[Planned]:
    """All portraits, first identities first, so that a stopped run leaves a complete smaller set."""
    for identity in range(identities):
        for cell in CELLS:
            seed = identity_seed(cell, identity)
            # Later identities take another cell's setting, so that seeds and settings are not confounded.
            donor = CELLS[(CELLS.index(cell) + 2 * identity) % len(CELLS)]
            for name in PRESETS:
                draft = Draft(
                    preset=name,
                    gender=PRESENTATIONS[cell.gender_presentation],
                    age=float(cell.age),
                    seed=seed,
                    cut=donor.cut,
                    beard=donor.beard,
                    choice=AGES.index(cell.age) + identity,
                )
                suffix = f"_{identity + 1}" if identities > 1 else ""
                yield Planned(
                    id=f"{name}_{cell.gender_presentation[0]}_{cell.age}{suffix}",
                    preset=name,
                    cell=cell,
                    identity=identity,
                    parameters=Parameters(person=make_person(draft), setting=donor.setting, quality=quality),
                )


def find_planned(name: str, quality: Quality) -> Planned:
    """The portrait of the one-identity set with this id."""
    for planned in plan_set(1, quality):
        if planned.id == name:
            return planned
    raise KeyError(f"No portrait {name!r} in the set; ids look like A_f_23: preset, presentation, age.")
