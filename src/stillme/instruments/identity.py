"""Describe a face by numbers, and tell by them whether two pictures show the same person.

In two steps: did the face drift, and does it show another person? The heads read age, gender and race from the same
numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stillme.core.colour import Floats
from stillme.instruments.faces import Mesh, Picture
from stillme.instruments.faces.chips import chip, recognition_chip
from stillme.instruments.faces.networks import network
from stillme.instruments.thresholds import load_thresholds

_SIDE = 224
_PADDING = 0.2
"""Of the face around it: with more, a new collar made people years older."""
_MEAN = np.array([93.5940, 104.7624, 129.1863], dtype=np.float32)
"""Blue, green, red: of the faces that the network was trained on."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FaceDescription:
    """One face as two networks describe it."""

    identity: Floats
    """128 numbers of length 1, by SFace, which was trained to tell people apart."""
    appearance: Floats
    """1,024 numbers, by a network that was trained on identity, age and gender together."""

    @property
    def features(self) -> Floats:
        """Both, as the heads expect them."""
        return np.concatenate([self.identity, self.appearance])


def describe(rgb: Picture, mesh: Mesh) -> FaceDescription:
    """Read a face that the mesh was fitted to."""
    return FaceDescription(identity=embed(rgb, mesh), appearance=_appearance(rgb, mesh))


def embed(rgb: Picture, mesh: Mesh) -> Floats:
    """Describe a face by 128 numbers of length 1: near for pictures of one person, far for others."""
    raw = network("sface").run(recognition_chip(rgb, mesh).transpose(2, 0, 1)[None])[0][0]
    return raw / max(float(np.linalg.norm(raw)), 1e-9)


def _appearance(rgb: Picture, mesh: Mesh) -> Floats:
    face = chip(rgb, mesh, _SIDE, _PADDING)[..., ::-1].astype(np.float32) - _MEAN
    return network("faceres").run(face[None])[0][0]


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
