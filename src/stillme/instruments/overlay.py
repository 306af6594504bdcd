"""Draw what the instruments used: boxes, skin, the background that showed the light, and what changed."""

from __future__ import annotations

import numpy as np

from stillme.instruments import faces
from stillme.instruments.faces.raster import Mask, Picture, fit, resize
from stillme.instruments.measurements import Image, Measurements, measure
from stillme.instruments.scene import Person, Scene

_SKIN = (0, 170, 255)
_LIGHT = (90, 200, 90)
_CHANGED = (255, 60, 0)
_BOX = (255, 220, 0)
_GAP = 8
_SIDE = 512


def draw(source: Image, edited: Image) -> Picture:
    """Measure a pair and draw what was used; see `overlay`."""
    return overlay(measure(source, edited))


def overlay(measured: Measurements) -> Picture:
    """Put three panels side by side: the source, the edit, and the edit where it changed.

    Blue is the skin that was compared, green the background that showed the light, orange what changed,
    yellow the boxes of all faces measured.
    """
    source = fit(measured.source.scene.rgb, _SIDE)
    height = source.shape[0]
    first = _tinted(source, _enlarged(measured.source.parts.background, source), _LIGHT, 0.25)
    second = resize(measured.edited.rgb, *_fitted(measured.edited.rgb, height))
    panels = [_with_face(first, measured.source.scene), _with_face(second, measured.edited), changed_places(measured)]
    gap = np.full((height, _GAP, 3), 255, dtype=np.uint8)
    return np.hstack([panels[0], gap, panels[1], gap, panels[2]])


def changed_places(measured: Measurements) -> Picture:
    """Mark what changed, in orange, on the edit as it lies on its source."""
    height, width = fit(measured.source.scene.rgb, _SIDE).shape[:2]
    panel = resize(measured.placement.rgb, width, height)
    if measured.change is None:
        return panel
    return _tinted(panel, _enlarged(measured.change.mask, panel), _CHANGED, 0.55)


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
