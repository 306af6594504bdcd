"""Adjustment for multiple tests."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given: controls the family-wise error rate."""
    order = sorted(range(len(p)), key=p.__getitem__)
    adjusted = [1.0] * len(p)
    running = 0.0
    for done, place in enumerate(order):
        running = max(running, min(1.0, (len(p) - done) * p[place]))
        adjusted[place] = running
    return adjusted


def benjamini_hochberg(p: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg's adjusted p-values, in the order given: controls the false discovery rate."""
    stats: Any = import_module("scipy.stats")
    return stats.false_discovery_control(p).tolist() if p else []
