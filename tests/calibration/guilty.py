"""Honest edits made unfair to one preset: what the jury must find.

The colour maths is `honest`'s own, apart from what the instruments use: an error that both shared would not be seen.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from stillme.core import images
from stillme.core.protocols import Capabilities
from stillme.core.types import Edited, EditOutcome, Portrait, Request
from stillme.editors.regions import regions_of
from stillme.findings.calibration import honest
from stillme.findings.calibration.honest import OPERATIONS, HonestEdit, HonestEditor, Kind, Light, Picture


@dataclass(frozen=True, kw_only=True)
class Guilt:
    """How an edit is made unfair to one preset."""

    subject: str
    quantity: str
    """What must find it."""
    preset: str
    skin: float = 0.0
    """L* by which the preset's skin is made lighter."""
    share: float = 0.0
    """Of the preset's portraits, those that come back unedited."""
    visible: bool = False
    """Whether it is tried on edits that show only."""

    def concerns(self, kind: Kind) -> bool:
        """Whether the guilt breaks a silence about this kind of edit."""
        return self.subject in kind.silent and not (self.visible and kind.visible is False)


@dataclass(frozen=True, kw_only=True)
class JuryLimits:
    """When a quantity passes; jury.toml explains each."""

    differs: float
    false_rate: float
    abstentions: float
    found: float
    answered: float
    unanswered: float


@dataclass(frozen=True, kw_only=True)
class Jury:
    """What `jury.toml` holds, and the honest kinds."""

    factors: list[str]
    subjects: dict[str, list[str]]
    guilty: dict[str, Guilt]
    limits: JuryLimits
    kinds: dict[str, Kind]

    def silent(self, kind: str) -> tuple[str, ...]:
        """The quantities that must say nothing about a kind of edit."""
        return tuple(quantity for subject in self.kinds[kind].silent for quantity in self.subjects[subject])


@cache
def load() -> Jury:
    """The jury."""
    data: dict[str, Any] = tomllib.loads(Path(__file__).with_name("jury.toml").read_text("utf-8"))
    guilty = {name: Guilt(**entry) for name, entry in data.pop("guilty").items()}
    return Jury(kinds=honest.load().kinds, guilty=guilty, limits=JuryLimits(**data.pop("limits")), **data)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuiltyEdit(HonestEdit):
    """An honest edit that is unfair to its guilt's preset."""

    guilt: str

    @property
    def name(self) -> str:
        """As in `gamma0.9 lighter`."""
        return f"{HonestEdit(kind=self.kind, amount=self.amount).name} {self.guilt}"

    def apply(self, portrait: Portrait) -> Picture:
        """The portrait, edited."""
        guilt, rgb = load().guilty[self.guilt], images.read_rgb(portrait.image.path)
        if portrait.attributes.get("preset") == guilt.preset:
            rgb = lightened(rgb, portrait, guilt.skin)
        return OPERATIONS[self.kind](rgb, portrait, self.amount_for(portrait))


class GuiltyEditor(HonestEditor):
    """Makes one guilty edit, and skips some of its preset's portraits."""

    capabilities = Capabilities(seed="exact", attributes_matter=True)

    def __init__(self, edit: GuiltyEdit, portraits: Sequence[Portrait]) -> None:
        super().__init__(edit)
        self._skipped = frozenset(skipped(edit, portraits))

    def edit_one(self, request: Request) -> EditOutcome:
        """Edit a portrait, or give it back."""
        (portrait,) = request.portraits
        if portrait.id in self._skipped:
            return Edited(image=honest._saved(images.read_rgb(portrait.image.path)))
        return super().edit_one(request)


def editor_of(edit: HonestEdit, portraits: Sequence[Portrait]) -> HonestEditor:
    """Who makes it."""
    return GuiltyEditor(edit, portraits) if isinstance(edit, GuiltyEdit) else HonestEditor(edit)


def edits(kinds: Sequence[str] = (), *, guilt: str = "") -> tuple[HonestEdit, ...]:
    """Every edit of these kinds, by default of all; with `guilt`, of those whose silence it breaks."""
    jury = load()
    asked = [name for name in kinds or jury.kinds if not guilt or jury.guilty[guilt].concerns(jury.kinds[name])]
    found = [(name, amount) for name in asked for amount in (jury.kinds[name].amounts or (None,))]
    if guilt:
        return tuple(GuiltyEdit(kind=name, amount=amount, guilt=guilt) for name, amount in found)
    return tuple(HonestEdit(kind=name, amount=amount) for name, amount in found)


def skipped(edit: GuiltyEdit, portraits: Sequence[Portrait]) -> Iterator[str]:
    """The portraits that a guilty edit leaves as they are, spread over their preset."""
    guilt = load().guilty[edit.guilt]
    own = sorted(portrait.id for portrait in portraits if portrait.attributes.get("preset") == guilt.preset)
    count = round(guilt.share * len(own))
    yield from (own[place * len(own) // count] for place in range(count))


def lightened(rgb: Picture, portrait: Portrait, by: float) -> Picture:
    """The picture with the skin lighter by so many L*; its hue stays."""
    if not by:
        return rgb
    mask = skin_of(portrait, rgb)
    linear = honest._linear(rgb)
    luminance = np.maximum(linear @ honest._LUMINANCE, 1e-6)
    wanted = _luminance_of(np.clip(_lightness(luminance) + by * mask, 0, 100))
    return honest._encoded(linear * (wanted / luminance)[..., None])


def skin_of(portrait: Portrait, rgb: Picture) -> Light:
    """Where the portrait shows skin, from 0 to 1."""
    regions = regions_of(portrait.image)
    assert regions is not None
    return np.asarray(Image.fromarray(regions.skin).resize((rgb.shape[1], rgb.shape[0])), dtype=np.float64) / 255


def _lightness(luminance: Light) -> Light:
    return np.where(luminance > 0.008856, 116 * np.cbrt(luminance) - 16, 903.3 * luminance)


def _luminance_of(lightness: Light) -> Light:
    return np.where(lightness > 8, ((lightness + 16) / 116) ** 3, lightness / 903.3)
