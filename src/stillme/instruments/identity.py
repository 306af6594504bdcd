"""Whether two pictures show the same person, in two steps: did the face drift, and does it show somebody else?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stillme.core.colour import Floats
from stillme.instruments.thresholds import load_thresholds


def distance(a: Floats, b: Floats) -> float:
    """Cosine distance of two embeddings of length 1: exactly 0 for the same, about 1 for strangers."""
    return float(((a - b).astype(np.float64) ** 2).sum()) / 2


def cut_for(labels: Mapping[str, str] | None) -> tuple[float, str]:
    """The distance from which two pictures show two people, and the group that it was calibrated for.

    The group's own cut where the audit discloses a label that we have calibrated; otherwise the common one.
    """
    cuts = load_thresholds().identity
    for value in (labels or {}).values():
        if value in cuts.groups:
            return cuts.groups[value], value
    return cuts.stranger, "all"


def in_words(apart: float, drift: float, stranger: float) -> str:
    """What a distance means, for people."""
    if apart >= stranger:
        return f"another person: {apart:.2f} apart, as far as people who look alike (from {stranger:.2f})"
    if apart >= drift:
        return (
            f"drifted: {apart:.2f} apart; the same picture stays below {drift:.2f}, strangers begin at {stranger:.2f}"
        )
    return f"the same person: {apart:.2f} apart, no more than the same picture saved again (below {drift:.2f})"
