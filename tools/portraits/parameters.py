# SPDX-License-Identifier: GPL-3.0-or-later
"""The parameters of one portrait: everything the picture depends on, and nothing else."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

GENERATOR_VERSION = 1
"""Raise it whenever the same parameters would give another picture; it is part of the hash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blend:
    """Weights of MakeHuman's three macro shapes; they sum to 1. Rendering parameters, not ancestry."""

    african: float
    asian: float
    caucasian: float

    def shares(self) -> Iterator[tuple[str, float]]:
        yield "african", self.african
        yield "asian", self.asian
        yield "caucasian", self.caucasian

    def towards(self, other: "Blend", amount: float) -> "Blend":
        """The blend `amount` (0…1) of the way to another."""
        return Blend(
            african=round(self.african + amount * (other.african - self.african), 4),
            asian=round(self.asian + amount * (other.asian - self.asian), 4),
            caucasian=round(self.caucasian + amount * (other.caucasian - self.caucasian), 4),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hair:
    """The hair of head, brows and beard."""

    cut: str
    texture: str
    melanin: float
    redness: float
    grey: float
    """Share of strands without pigment."""
    recession: float
    """0 a full hairline … 1 a bald crown."""
    beard: float
    """Length in millimetres; 0 is clean-shaven."""
    brow_weight: float
    """Thickness of the brows relative to the identity's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Who is shown."""

    seed: int
    """Identity: local shape, asymmetry, brow shape, hairline, moles."""
    age: float
    gender: float
    """0 feminine … 1 masculine presentation of the shape."""
    blend: Blend
    features: tuple[tuple[str, float], ...]
    """Shape targets that belong to the preset rather than to the identity."""
    skin_lab: tuple[float, float, float]
    """The CIELAB colour that cheeks and forehead should have in the picture."""
    freckles: float
    iris: str
    hair: Hair


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How the person is shown."""

    light: str
    background: str
    garment: str
    garment_colour: str
    expression: str
    exposure_ev: float = 0.0
    """Exposure in stops, applied to the finished linear picture (person and background)."""
    light_tint: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """Colour of all lights as a gain per linear channel; the background wall is lit by it too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Size and noise of the picture."""

    size: int = 768
    samples: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Everything that one picture depends on."""

    person: Person
    setting: Setting
    quality: Quality

    def as_dict(self) -> dict[str, Any]:
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Parameters":
        person, setting = dict(data["person"]), dict(data["setting"])
        person["blend"] = Blend(**person["blend"])
        person["hair"] = Hair(**person["hair"])
        person["features"] = tuple((name, weight) for name, weight in person["features"])
        person["skin_lab"] = tuple(person["skin_lab"])
        if "light_tint" in setting:
            setting["light_tint"] = tuple(setting["light_tint"])
        return cls(person=Person(**person), setting=Setting(**setting), quality=Quality(**data.get("quality", {})))

    def digest(self) -> str:
        """A hash of all parameters and of the generator's version: equal hash, equal picture."""
        text = json.dumps({"version": GENERATOR_VERSION, **self.as_dict()}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def render_digest(self) -> str:
        """The hash of what Cycles must render; exposure, tint and background are applied afterwards."""
        setting = dataclasses.replace(self.setting, background="", exposure_ev=0.0, light_tint=(1.0, 1.0, 1.0))
        return dataclasses.replace(self, setting=setting).digest()
