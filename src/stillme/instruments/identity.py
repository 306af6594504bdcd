"""Whether a face embedding takes two pictures for the same person."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stillme.colour import Floats
from stillme.faces import Mesh, Picture
from stillme.faces.chips import chip
from stillme.faces.networks import network
from stillme.instruments.thresholds import load_thresholds


def embed(rgb: Picture, mesh: Mesh) -> Floats:
    """Describe a face by 128 numbers: near for pictures of one person, far for others."""
    face = chip(rgb, mesh, 150, 0.25).transpose(2, 0, 1)[None]
    return network("identity").run(face)[0][0]


def distance(a: Floats, b: Floats) -> float:
    """Euclidean distance of two embeddings."""
    return float(np.linalg.norm(a - b))


def cut_for(labels: Mapping[str, str] | None) -> tuple[float, str]:
    """The distance up to which two pictures count as one person, and the group that it was calibrated for.

    The group's own cut where the audit discloses a label that we have calibrated; otherwise the common one.
    """
    cuts = load_thresholds().identity
    for value in (labels or {}).values():
        if value in cuts.groups:
            return cuts.groups[value], value
    return cuts.cut, "all"
