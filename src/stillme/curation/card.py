"""The dataset card's content: who was chosen, by whom, under which terms, and in which light."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stillme.curation.confounds import Compared, compare_groups
from stillme.curation.criteria import load_criteria
from stillme.curation.decisions import Action
from stillme.curation.evenness import Spread
from stillme.curation.likeness import Alike, find_alike
from stillme.curation.measuring import Measured
from stillme.curation.sampling import Cell
from stillme.curation.selection import Selected

_LEVELS = 30
"""An attribute with more levels than this is a number or a name, not a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curation:
    """What the card tells of the curating."""

    levels: Mapping[str, tuple[str, ...]]
    pools: Spread
    places: Spread
    shortfalls: tuple[str, ...]
    passed_over: tuple[str, ...]
    missing: tuple[tuple[Cell, str], ...]
    """Cells without a portrait, and why."""
    curators: Mapping[str, int]
    """Cells that each decided."""
    agreement: tuple[tuple[str, int, float, float | None], ...]
    """Who, cells, share chosen alike, kappa."""
    states: Mapping[str, int]
    actions: tuple[Action, ...]
    """Everything that curators did, as they did it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What there is to tell beside the pictures."""

    title: str
    version: str
    made: str
    stillme: str
    source: str
    method: str
    curation: Curation | None = None
    """None for pictures that a user brought and nobody curated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Depicted:
    """A finished portrait and what the instruments read off it."""

    selected: Selected
    sha256: str
    measured: Measured
    enlarged: float
    crop: str
    box: tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Card:
    """Everything that a card says."""

    about: About
    portraits: Sequence[Depicted]
    groups: Mapping[str, list[Compared]]
    alike: tuple[Alike, ...]

    @classmethod
    def of(cls, about: About, portraits: Sequence[Depicted]) -> Card:
        """Compare the groups of every attribute that groups, and look for likeness."""
        names = dict.fromkeys(name for each in portraits for name in each.selected.attributes)
        groups: dict[str, list[Compared]] = {}
        for name in names:
            levels = [each.selected.attributes.get(name, "not stated") for each in portraits]
            if 2 <= len(set(levels)) <= min(_LEVELS, max(2, len(portraits) // 2)):
                order = sorted(zip(levels, portraits, strict=True), key=lambda pair: _place(about, name, pair[0]))
                groups[name] = compare_groups(
                    [level for level, _ in order], [each.measured.values for _, each in order]
                )
        alike = find_alike({each.selected.id: each.measured for each in portraits})
        return cls(about=about, portraits=portraits, groups=groups, alike=alike)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        told = self.about.curation
        return {
            "title": self.about.title,
            "version": self.about.version,
            "made": self.about.made,
            "stillme": self.about.stillme,
            "source": self.about.source,
            "method": self.about.method,
            "portraits": len(self.portraits),
            "curation": None
            if told is None
            else {
                "curators": dict(told.curators),
                "agreement": [
                    {"who": who, "cells": cells, "alike": alike, "kappa": kappa}
                    for who, cells, alike, kappa in told.agreement
                ],
                "outcomes": dict(told.states),
                "actions": len(told.actions),
                "pools": _spread(told.pools),
                "places_on_screen": _spread(told.places),
                "missing": [{"cell": list(cell), "why": why} for cell, why in told.missing],
                "shortfalls": list(told.shortfalls),
                "passed_over": list(told.passed_over),
                "criteria": {name: list(counts) for name, counts in self.criteria().items()},
            },
            "alike": [
                {"first": pair.first, "second": pair.second, "kind": pair.kind, "distance": pair.distance}
                for pair in self.alike
            ],
            "groups": {
                name: [
                    {
                        "property": each.shown.key,
                        "means": dict(each.means),
                        "counts": dict(each.counts),
                        "explained": each.explained,
                        "chance": each.chance,
                        "flagged": each.flagged,
                    }
                    for each in compared
                ]
                for name, compared in self.groups.items()
            },
            "terms": [
                {"licence": licence, "label_origin": origin, "consent": consent, "portraits": count}
                for (licence, origin, consent), count in self.terms().items()
            ],
        }

    def criteria(self) -> dict[str, tuple[int, int, int]]:
        """Of each criterion: portraits for which all, some, none of the choosers ticked it."""
        found: dict[str, tuple[int, int, int]] = {}
        for criterion in load_criteria().all:
            shares = [
                each.selected.criteria[criterion.key] / max(len(each.selected.chosen_by), 1)
                for each in self.portraits
                if each.selected.criteria is not None
            ]
            whole, none = sum(share >= 1 for share in shares), sum(share == 0 for share in shares)
            found[criterion.key] = (whole, len(shares) - whole - none, none)
        return found

    def terms(self) -> Counter[tuple[str, str, str]]:
        """Licence, who gave the labels, consent: how many portraits have each."""
        return Counter(
            (each.selected.licence, each.selected.label_origin, each.selected.consent) for each in self.portraits
        )


def _spread(spread: Spread) -> dict[str, Any]:
    chosen = {str(name): {"chosen": count, "blind": spread.expected[name]} for name, count in spread.chosen.items()}
    return {"counts": chosen, "chance": spread.chance}


def _place(about: About, name: str, level: str) -> tuple[int, str]:
    levels = about.curation.levels.get(name, ()) if about.curation else ()
    return (levels.index(level) if level in levels else len(levels), level)
