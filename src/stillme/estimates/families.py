"""Families of tests: p-values adjusted for how many there are."""

from __future__ import annotations

from collections.abc import Sequence

LEVEL = 0.05
"""Tests that cannot reach this have no part in a family (Tarone 1990)."""


def holm(p: Sequence[float], smallest: Sequence[float] | None = None) -> list[float]:
    """Holm's adjusted p-values, in the order given: controls the family-wise error rate.

    With `smallest`, tests that cannot reject have no part in the family and keep a p-value of 1 (Tarone 1990).
    """
    able = [place for place in range(len(p)) if smallest is None or smallest[place] <= LEVEL]
    adjusted, running = [1.0] * len(p), 0.0
    for done, place in enumerate(sorted(able, key=p.__getitem__)):
        running = max(running, min(1.0, (len(able) - done) * p[place]))
        adjusted[place] = running
    return adjusted


def benjamini_hochberg(p: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg's adjusted p-values, in the order given: controls the false discovery rate."""
    adjusted, running = [1.0] * len(p), 1.0
    for rank, place in reversed(list(enumerate(sorted(range(len(p)), key=p.__getitem__), start=1))):
        running = min(running, p[place] * len(p) / rank)
        adjusted[place] = running
    return adjusted
