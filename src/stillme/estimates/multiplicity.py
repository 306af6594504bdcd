"""Many tests at once."""

from __future__ import annotations

from collections.abc import Sequence


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given: none below its level means no false find at that level."""
    order = sorted(range(len(p)), key=p.__getitem__)
    adjusted = [1.0] * len(p)
    running = 0.0
    for done, place in enumerate(order):
        running = max(running, min(1.0, (len(p) - done) * p[place]))
        adjusted[place] = running
    return adjusted


def benjamini_hochberg(p: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg's adjusted p-values, in the order given: of those below a level, that share is false."""
    order = sorted(range(len(p)), key=p.__getitem__, reverse=True)
    adjusted = [1.0] * len(p)
    running = 1.0
    for done, place in enumerate(order):
        running = min(running, p[place] * len(p) / (len(p) - done))
        adjusted[place] = running
    return adjusted
