"""Were some pools, or some places on the screen, chosen more often than blind choosing would give?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_DRAWS = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How often each was chosen, and how often blind choosing would."""

    chosen: Mapping[int, int]
    expected: Mapping[int, float]
    chance: float | None
    """How often blind choosing is at least as uneven; None where there was nothing to choose between."""


def compare_with_blind(decisions: Sequence[tuple[int, Sequence[Sequence[int]]]], seed: int = 0) -> Spread:
    """Each decision is the place of the chosen one among its options; an option lists what it counts for."""
    names = sorted({name for _, options in decisions for option in options for name in option})
    at = {name: place for place, name in enumerate(names)}
    rng = np.random.default_rng(seed)
    found, expected = np.zeros(len(names)), np.zeros(len(names))
    blind = np.zeros((_DRAWS, len(names)))
    for chosen, options in decisions:
        counts = np.zeros((len(options), len(names)))
        for place, option in enumerate(options):
            counts[place, [at[name] for name in option]] = 1
        found += counts[chosen]
        expected += counts.mean(axis=0)
        blind += counts[rng.integers(len(options), size=_DRAWS)]
    chance: float | None = None
    if any(len(options) > 1 for _, options in decisions) and len(names) > 1:
        uneven = ((blind - expected) ** 2 / expected).sum(axis=1)
        observed = ((found - expected) ** 2 / expected).sum()
        chance = float((1 + (uneven >= observed - 1e-9).sum()) / (1 + _DRAWS))
    return Spread(
        chosen={name: int(count) for name, count in zip(names, found, strict=True)},
        expected={name: round(float(count), 1) for name, count in zip(names, expected, strict=True)},
        chance=chance,
    )
