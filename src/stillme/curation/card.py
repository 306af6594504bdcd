"""The dataset card's content: who was chosen, by whom, and under which terms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stillme.curation.criteria import load_criteria
from stillme.curation.decisions import Action
from stillme.curation.likeness import SimilarPair, find_similar
from stillme.curation.measuring import Measured
from stillme.curation.sampling import Cell
from stillme.curation.selection import Selected


@dataclass(frozen=True, slots=True, kw_only=True)
class Curation:
    """What the card says about the curation."""

    levels: Mapping[str, tuple[str, ...]]
    pools: Mapping[int, int]
    """How many portraits come from each pool."""
    shortfalls: tuple[str, ...]
    passed_over: tuple[str, ...]
    missing: tuple[tuple[Cell, str], ...]
    """Cells without a portrait, and why."""
    curators: Mapping[str, int]
    """How many cells each decided."""
    agreement: tuple[tuple[str, int, float, float | None], ...]
    """Curators, cells, share of equal choices, kappa."""
    states: Mapping[str, int]
    actions: tuple[Action, ...]
    """The curators' log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Title, version and origin of the set."""

    title: str
    version: str
    made: str
    stillme: str
    source: str
    method: str
    curation: Curation | None = None
    """None for a user's own pictures, which nobody curated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedPortrait:
    """A finished portrait and its measurements."""

    selected: Selected
    sha256: str
    measured: Measured
    enlarged: float
    crop: str
    box: tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Card:
    """The content of a card."""

    about: About
    portraits: Sequence[FinishedPortrait]
    alike: tuple[SimilarPair, ...]

    @classmethod
    def of(cls, about: About, portraits: Sequence[FinishedPortrait]) -> Card:
        """Look for similar pictures."""
        alike = find_similar({portrait.selected.id: portrait.measured for portrait in portraits})
        return cls(about=about, portraits=portraits, alike=alike)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        curation = self.about.curation
        return {
            "title": self.about.title,
            "version": self.about.version,
            "made": self.about.made,
            "stillme": self.about.stillme,
            "source": self.about.source,
            "method": self.about.method,
            "portraits": len(self.portraits),
            "curation": None
            if curation is None
            else {
                "curators": dict(curation.curators),
                "agreement": [
                    {"who": who, "cells": cells, "alike": alike, "kappa": kappa}
                    for who, cells, alike, kappa in curation.agreement
                ],
                "outcomes": dict(curation.states),
                "actions": len(curation.actions),
                "pools": {str(pool): count for pool, count in sorted(curation.pools.items())},
                "missing": [{"cell": list(cell), "why": why} for cell, why in curation.missing],
                "shortfalls": list(curation.shortfalls),
                "passed_over": list(curation.passed_over),
                "criteria": {name: list(counts) for name, counts in self.criteria().items()},
            },
            "alike": [
                {"first": pair.first, "second": pair.second, "kind": pair.kind, "distance": pair.distance}
                for pair in self.alike
            ],
            "terms": [
                {"licence": licence, "label_origin": origin, "consent": consent, "portraits": count}
                for (licence, origin, consent), count in self.terms().items()
            ],
        }

    def criteria(self) -> dict[str, tuple[int, int, int]]:
        """By criterion: portraits for which all, some, none of the choosers ticked it."""
        counts: dict[str, tuple[int, int, int]] = {}
        for criterion in load_criteria().all:
            shares = [
                portrait.selected.criteria[criterion.key] / max(len(portrait.selected.chosen_by), 1)
                for portrait in self.portraits
                if portrait.selected.criteria is not None
            ]
            by_all, by_none = sum(share >= 1 for share in shares), sum(share == 0 for share in shares)
            counts[criterion.key] = (by_all, len(shares) - by_all - by_none, by_none)
        return counts

    def terms(self) -> Counter[tuple[str, str, str]]:
        """How many portraits have each combination of licence, label origin and consent."""
        return Counter(
            (portrait.selected.licence, portrait.selected.label_origin, portrait.selected.consent)
            for portrait in self.portraits
        )
