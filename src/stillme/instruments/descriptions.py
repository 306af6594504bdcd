"""Describe a face, or recall how it was described."""

from __future__ import annotations

import numpy as np

from stillme.instruments import identity
from stillme.instruments.faces.landmarks import Mesh
from stillme.instruments.faces.memory import recalled
from stillme.instruments.faces.raster import Picture
from stillme.instruments.identity import FaceDescription

_IDENTITY = 128


def describe(rgb: Picture, mesh: Mesh) -> FaceDescription:
    """Read a face that the mesh was fitted to."""
    about = mesh.points.tobytes() + np.float64(mesh.presence).tobytes()
    features = recalled("describe", rgb, about, lambda: identity.describe(rgb, mesh).features)
    return FaceDescription(identity=features[:_IDENTITY], appearance=features[_IDENTITY:])
