"""Draw what the instruments looked at: boxes, skin, what told the light, and what changed."""

from __future__ import annotations

import numpy as np

from stillme import faces
from stillme.faces.raster import Mask, Picture, fit, resize
from stillme.instruments.measurements import Image, Measurements, measure
from stillme.instruments.scene import Person, Scene

_SKIN = (0, 170, 255)
_LIGHT = (90, 200, 90)
_CHANGED = (255, 60, 0)
_BOX = (255, 220, 0)
_GAP = 8
_SIDE = 512


def draw(source: Image, edited: Image) -> Picture:
    """Measure a pair and draw what was looked at; see `overlay`."""
    return overlay(measure(source, edited))


def overlay(found: Measurements) -> Picture:
    """Put three panels side by side: the source, the edit, and the edit where it changed.

    Blue is the skin that was compared, green the background that told the light, orange what changed,
    yellow the boxes of all faces found.
    """
    source = fit(found.source.scene.rgb, _SIDE)
    height, width = source.shape[:2]
    first = _tinted(source, _enlarged(found.source.parts.background, source), _LIGHT, 0.25)
    second = resize(found.edited.rgb, *_fitted(found.edited.rgb, height))
    third = resize(found.placement.rgb, width, height)
    if found.change is not None:
        third = _tinted(third, _enlarged(found.change.mask, third), _CHANGED, 0.55)
    panels = [_with_face(first, found.source.scene), _with_face(second, found.edited), third]
    gap = np.full((height, _GAP, 3), 255, dtype=np.uint8)
    return np.hstack([panels[0], gap, panels[1], gap, panels[2]])


def _with_face(panel: Picture, scene: Scene) -> Picture:
    scale = panel.shape[1] / scene.rgb.shape[1]
    if isinstance(scene.person, Person):
        panel = _tinted(panel, _enlarged(scene.person.skin, panel), _SKIN, 0.45)
    for face in faces.find(scene.rgb):
        panel = _boxed(panel, face, scale)
    return panel


def _boxed(panel: Picture, face: faces.Face, scale: float) -> Picture:
    import cv2

    drawn = panel.copy()
    start = round(face.left * scale), round(face.top * scale)
    end = round((face.left + face.width) * scale), round((face.top + face.height) * scale)
    cv2.rectangle(drawn, start, end, _BOX, 2)
    for x, y in face.points * scale:
        cv2.circle(drawn, (round(float(x)), round(float(y))), 3, _BOX, -1)
    return drawn


def _fitted(rgb: Picture, height: int) -> tuple[int, int]:
    return max(round(rgb.shape[1] * height / rgb.shape[0]), 1), height


def _enlarged(mask: Mask, panel: Picture) -> Mask:
    return resize(mask.astype(np.float32), panel.shape[1], panel.shape[0]) > 0.5


def _tinted(panel: Picture, mask: Mask, colour: tuple[int, int, int], strength: float) -> Picture:
    drawn = panel.astype(np.float32)
    drawn[mask] = (1 - strength) * drawn[mask] + strength * np.array(colour, dtype=np.float32)
    return drawn.astype(np.uint8)
