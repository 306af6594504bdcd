"""Were some pools, or some places on the screen, chosen more often than a blind choice would?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_DRAWS = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How often each was chosen, and how often a blind choice would choose it."""

    chosen: Mapping[int, int]
    expected: Mapping[int, float]
    chance: float | None
    """p-value: how often a blind choice is at least as uneven; None where there was no choice."""


def compare_with_blind(decisions: Sequence[tuple[int, Sequence[Sequence[int]]]], seed: int = 0) -> Spread:
    """Each decision is the place of the chosen one among its options; an option lists what it counts for."""
    names = sorted({name for _, options in decisions for option in options for name in option})
    column = {name: index for index, name in enumerate(names)}
    rng = np.random.default_rng(seed)
    observed, expected = np.zeros(len(names)), np.zeros(len(names))
    blind = np.zeros((_DRAWS, len(names)))
    for chosen, options in decisions:
        counts = np.zeros((len(options), len(names)))
        for place, option in enumerate(options):
            counts[place, [column[name] for name in option]] = 1
        observed += counts[chosen]
        expected += counts.mean(axis=0)
        blind += counts[rng.integers(len(options), size=_DRAWS)]
    chance: float | None = None
    if any(len(options) > 1 for _, options in decisions) and len(names) > 1:
        by_chance = ((blind - expected) ** 2 / expected).sum(axis=1)
        statistic = ((observed - expected) ** 2 / expected).sum()
        chance = float((1 + (by_chance >= statistic - 1e-9).sum()) / (1 + _DRAWS))
    return Spread(
        chosen={name: int(count) for name, count in zip(names, observed, strict=True)},
        expected={name: round(float(count), 1) for name, count in zip(names, expected, strict=True)},
        chance=chance,
    )
