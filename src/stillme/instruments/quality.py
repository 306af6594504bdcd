"""Pose, sharpness and exposure of a face: is it shown well enough to be measured?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stillme.instruments.faces import Mesh, Picture
from stillme.instruments.faces.chips import chip
from stillme.instruments.faces.landmarks import CHIN, FOREHEAD, LEFT_EYE_CORNER, RIGHT_EYE_CORNER
from stillme.instruments.thresholds import load_thresholds


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """How a face is shown."""

    yaw: float
    """Degrees: positive looks towards the right side of the picture."""
    pitch: float
    """Degrees: positive looks up."""
    roll: float
    """Degrees: positive tilts clockwise."""
    sharpness: float
    """Spread of fine detail in the face, in grey levels; a blurred face has little."""
    overexposed: float
    """Share of the face that is clipped to white in some channel."""
    underexposed: float
    """Share that is black."""

    @property
    def doubts(self) -> tuple[str, ...]:
        """What makes measurements on this face less certain."""
        thresholds = load_thresholds().quality
        turned = max(abs(self.yaw), abs(self.pitch)) > thresholds.turned
        return tuple(
            doubt
            for doubt, holds in (
                ("turned away", turned),
                ("blurred", self.sharpness < thresholds.sharpness),
                ("overexposed", self.overexposed > thresholds.clipped),
                ("underexposed", self.underexposed > thresholds.clipped),
            )
            if holds
        )


def read_quality(rgb: Picture, mesh: Mesh) -> Quality:
    """Measure how the face is shown."""
    import cv2

    across = mesh.points[LEFT_EYE_CORNER] - mesh.points[RIGHT_EYE_CORNER]
    across_depth = float(mesh.depth[LEFT_EYE_CORNER] - mesh.depth[RIGHT_EYE_CORNER])
    down = mesh.points[CHIN] - mesh.points[FOREHEAD]
    down_depth = float(mesh.depth[CHIN] - mesh.depth[FOREHEAD])
    face = chip(rgb, mesh, 150, 0.0)
    grey = cv2.cvtColor(face, cv2.COLOR_RGB2GRAY).astype(np.float32)
    return Quality(
        yaw=float(np.degrees(np.arctan2(across_depth, np.linalg.norm(across)))),
        pitch=float(np.degrees(np.arctan2(down_depth, np.linalg.norm(down)))),
        roll=float(np.degrees(np.arctan2(across[1], across[0]))),
        sharpness=float(np.std(grey - cv2.GaussianBlur(grey, (0, 0), 1.5))),
        overexposed=float((face >= 253).any(axis=2).mean()),
        underexposed=float((face <= 4).all(axis=2).mean()),
    )
