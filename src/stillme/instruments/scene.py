"""What one picture shows: the person's face and skin, and a small copy to compare with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stillme.core.colour import Floats, lightness, linear_to_lab, to_linear
from stillme.core.types import Abstained
from stillme.instruments import faces
from stillme.instruments.faces.raster import Mask, Picture, blur, fit, resize
from stillme.instruments.thresholds import load_thresholds

WORKING = 1024
"""Longer side, in pixels, at which faces are measured; more adds time, not accuracy."""
SMALL = 256
"""Longer side at which whole pictures are compared."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Person:
    """The face that a picture is about. Its mesh and masks are computed on first use."""

    rgb: Picture
    face: faces.Face

    @cached_property
    def mesh(self) -> faces.Mesh:
        """Where each part of the face lies."""
        return faces.mesh(self.rgb, self.face)

    @cached_property
    def skin(self) -> Mask:
        """Bare skin, in the picture's size."""
        return faces.skin_mask(self.mesh, self.rgb.shape)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scene:
    """One picture and the person in it."""

    rgb: Picture
    person: Person | Abstained
    """Or why no person can be measured."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class View:
    """A small, smoothed copy: noise of encoding and resizing is gone, visible changes are not."""

    linear: Floats
    lab: Floats
    lightness: Floats
    """L* before smoothing: the drawing, down to the pixel."""

    def thinned(self) -> View:
        """Every second pixel of every second row: enough for statistics of large areas."""
        return View(linear=self.linear[::2, ::2], lab=self.lab[::2, ::2], lightness=self.lightness[::2, ::2])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """Which pixels of a view are what."""

    background: Mask
    hair: Mask
    """The person above the chin, without the face: hair, or what covers it, and ears."""
    clothes: Mask
    """The person below the chin."""
    face: Mask

    @property
    def wear(self) -> Mask:
        """Hair and clothes: the person without the face."""
        return self.hair | self.clothes

    def thinned(self) -> Parts:
        """Thinned as a view is."""
        return self._each(lambda mask: mask[::2, ::2])

    def within(self, covered: Mask | None) -> Parts:
        """Leave out what an edited picture does not reach."""
        return self if covered is None else self._each(lambda mask: mask & covered)

    def _each(self, change: Callable[[Mask], Mask]) -> Parts:
        return Parts(
            background=change(self.background),
            hair=change(self.hair),
            clothes=change(self.clothes),
            face=change(self.face),
        )


def look(rgb: Picture) -> Scene:
    """Find the person in a picture."""
    shrunk = fit(rgb, WORKING)
    return Scene(rgb=shrunk, person=_person(shrunk, scale=max(rgb.shape[:2]) / max(shrunk.shape[:2])))


def shrink(rgb: Picture) -> Picture:
    """Make the small copy in which whole pictures are compared."""
    return fit(rgb, SMALL)


def view(small: Picture) -> View:
    """Smooth a small copy."""
    # Average light, not code values: a checked shirt must not darken when it is shrunk.
    sharp = to_linear(small)
    linear = blur(sharp, 1.0)
    return View(linear=linear, lab=linear_to_lab(linear), lightness=lightness(sharp))


def parts(scene: Scene, shape: tuple[int, int]) -> Parts:
    """Divide the small copy of a scene into background, face, and the rest of the person."""
    likely = resize(faces.person_mask(scene.rgb), shape[1], shape[0])
    face = np.zeros(shape, dtype=np.bool_)
    above = np.zeros((shape[0], 1), dtype=np.bool_)
    if isinstance(scene.person, Person):
        oval = faces.face_oval(scene.person.mesh, scene.rgb.shape).astype(np.float32)
        face = resize(oval, shape[1], shape[0]) > 0.5
        chin = float(scene.person.mesh.points[:, 1].max()) * shape[0] / scene.rgb.shape[0]
        above = (np.arange(shape[0]) < chin)[:, None]
    wear = (likely > 0.9) & ~face
    return Parts(background=(likely < 0.1) & ~face, hair=wear & above, clothes=wear & ~above, face=face)


def _person(rgb: Picture, scale: float) -> Person | Abstained:
    thresholds = load_thresholds().face
    detected = faces.find(rgb)
    if not detected:
        return Abstained(reason="no face found")
    face = detected[0]
    if len(detected) > 1:
        rival = faces.prominence(detected[1], rgb.shape) / faces.prominence(face, rgb.shape)
        if rival >= thresholds.rival:
            return Abstained(reason="several faces, none clearly the main one")
    if face.size * scale < thresholds.smallest:
        return Abstained(reason=f"face too small: {face.size * scale:.0f} of at least {thresholds.smallest:.0f} pixels")
    return Person(rgb=rgb, face=face)
