"""Describe a face by numbers: near for pictures of one person, and what the heads read age, gender and race from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stillme.core.colour import Floats
from stillme.instruments.faces import Mesh, Picture
from stillme.instruments.faces.chips import chip, recognition_chip
from stillme.instruments.faces.networks import network

_SIDE = 224
_PADDING = 0.2
"""Of the face around it: with more, a new collar made people years older."""
_MEAN = np.array([93.5940, 104.7624, 129.1863], dtype=np.float32)
"""Blue, green, red: of the faces that the network was trained on."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Description:
    """One face as two networks describe it."""

    identity: Floats
    """128 numbers of length 1, by SFace, which was trained to tell people apart."""
    appearance: Floats
    """1,024 numbers, by a network that was trained on identity, age and gender together."""

    @property
    def features(self) -> Floats:
        """Both, as the heads expect them."""
        return np.concatenate([self.identity, self.appearance])


def describe(rgb: Picture, mesh: Mesh) -> Description:
    """Read a face that the mesh was fitted to."""
    return Description(identity=embed(rgb, mesh), appearance=_appearance(rgb, mesh))


def embed(rgb: Picture, mesh: Mesh) -> Floats:
    """Describe a face by 128 numbers of length 1: near for pictures of one person, far for others."""
    raw = network("sface").run(recognition_chip(rgb, mesh).transpose(2, 0, 1)[None])[0][0]
    return raw / max(float(np.linalg.norm(raw)), 1e-9)


def _appearance(rgb: Picture, mesh: Mesh) -> Floats:
    face = chip(rgb, mesh, _SIDE, _PADDING)[..., ::-1].astype(np.float32) - _MEAN
    return network("faceres").run(face[None])[0][0]
