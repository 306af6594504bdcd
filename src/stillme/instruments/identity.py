"""Is it still the same person, to a face embedding?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stillme.colour import Floats
from stillme.faces import Mesh, Picture
from stillme.faces.chips import chip
from stillme.faces.networks import network
from stillme.instruments.limits import load


def embed(rgb: Picture, mesh: Mesh) -> Floats:
    """Describe a face by 128 numbers: near for pictures of one person, far for others."""
    face = chip(rgb, mesh, 150, 0.25).transpose(2, 0, 1)[None]
    return network("identity").run(face)[0][0]


def distance(a: Floats, b: Floats) -> float:
    """Euclidean distance of two embeddings."""
    return float(np.linalg.norm(a - b))


def cut_for(labels: Mapping[str, str] | None) -> tuple[float, str]:
    """Give the distance up to which two pictures pass for one person, and the group that it was calibrated for.

    The group's own cut where the audit discloses a label that we have calibrated; otherwise the common one.
    """
    cuts = load().identity
    for value in (labels or {}).values():
        if value in cuts.groups:
            return cuts.groups[value], value
    return cuts.cut, "all"
