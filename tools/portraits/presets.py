# SPDX-License-Identifier: GPL-3.0-or-later
"""The seven appearance presets and the twelve cells of the factorial set, as data.

A preset is a mixture of rendering parameters. It is not a race, and no preset
stands for a people; they are called A to G so that nobody reads more into them.
"""

from dataclasses import dataclass

import numpy as np

from .parameters import Blend, Hair, Person, Setting

AGES = (23, 33, 43, 53, 63, 76)
PRESENTATIONS = {"feminine": 0.03, "masculine": 0.97}


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One appearance: shape blend, its own features, skin, hair and iris."""

    blend: Blend
    features: tuple[tuple[str, float], ...]
    skin_lab: tuple[float, float, float]
    texture: str
    melanin: float
    redness: float
    irides: tuple[str, ...]
    """One is chosen by the cell."""
    brow_weight: float = 1.0
    beard: float = 1.0
    """Factor on the cell's beard."""
    freckles: float = 0.0
    greying: float = 1.0


PRESETS: dict[str, Preset] = {
    "A": Preset(
        blend=Blend(african=1, asian=0, caucasian=0),
        features=(("mouth/mouth-lowerlip-volume-incr", 0.15),),
        skin_lab=(36, 10.5, 14), texture="coily", melanin=0.99, redness=0.10, irides=("darkbrown",),
        brow_weight=0.95, greying=0.85,
    ),
    "B": Preset(
        blend=Blend(african=0, asian=0, caucasian=1),
        features=(("nose/nose-point-up", 0.15),),
        skin_lab=(74, 11, 15), texture="fine", melanin=0.42, redness=0.25,
        irides=("blue", "hazel", "green", "grey", "blue", "hazel"), brow_weight=0.9, freckles=0.55,
    ),
    "C": Preset(
        blend=Blend(african=0, asian=1, caucasian=0),
        features=(),
        skin_lab=(70, 9, 19), texture="straight", melanin=0.98, redness=0.10, irides=("darkbrown",),
        brow_weight=0.9, beard=0.55, greying=0.9,
    ),
    "D": Preset(
        blend=Blend(african=0.20, asian=0.80, caucasian=0),
        features=(("head/head-round", 0.35), ("nose/nose-width3-incr", 0.35), ("cheek/*-cheek-bones-incr", 0.35),
                  ("nose/nose-hump-decr", 0.2), ("mouth/mouth-upperlip-volume-incr", 0.25)),
        skin_lab=(57, 12, 21), texture="straight", melanin=0.99, redness=0.08, irides=("darkbrown",),
        brow_weight=1.0, beard=0.7, greying=0.9,
    ),
    "E": Preset(
        blend=Blend(african=0.25, asian=0.10, caucasian=0.65),
        features=(("eyes/*-eye-scale-incr", 0.40), ("nose/nose-curve-convex", 0.35), ("nose/nose-point-down", 0.25),
                  ("head/head-oval", 0.35), ("eyes/*-eye-bag-in", 0.15)),
        skin_lab=(48, 13, 20), texture="wavy", melanin=0.99, redness=0.10, irides=("darkbrown", "brown"),
        brow_weight=1.30, beard=1.3,
    ),
    "F": Preset(
        blend=Blend(african=0.05, asian=0, caucasian=0.95),
        features=(("nose/nose-hump-incr", 0.50), ("nose/nose-scale-vert-incr", 0.30), ("head/head-rectangular", 0.30),
                  ("eyes/*-eye-push1-in", 0.30), ("chin/chin-prominent-incr", 0.2)),
        skin_lab=(64, 12, 19), texture="wavy", melanin=0.93, redness=0.22, irides=("amber", "hazel", "brown"),
        brow_weight=1.35, beard=1.3,
    ),
    "G": Preset(
        blend=Blend(african=0.45, asian=0.25, caucasian=0.30),
        features=(("mouth/mouth-lowerlip-volume-incr", 0.30), ("mouth/mouth-scale-horiz-incr", 0.20),
                  ("nose/nose-width2-incr", 0.2), ("head/head-diamond", 0.35), ("chin/chin-height-decr", 0.15)),
        skin_lab=(53, 13, 21), texture="curly", melanin=0.88, redness=0.30, irides=("brown", "amber"),
        brow_weight=1.05,
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A gender presentation at an age, with the setting that all its portraits share."""

    gender_presentation: str
    age: int
    cut: str
    beard: float
    setting: Setting

    @property
    def name(self) -> str:
        return f"{self.gender_presentation[0]}{self.age}"


def _cell(
    presentation: str,
    age: int,
    cut: str,
    beard: float,
    light: str,
    background: str,
    garment: str,
    colour: str,
    expression: str,
) -> Cell:
    setting = Setting(light=light, background=background, garment=garment, garment_colour=colour, expression=expression)
    return Cell(gender_presentation=presentation, age=age, cut=cut, beard=beard, setting=setting)


CELLS: tuple[Cell, ...] = (
    _cell("feminine", 23, "shoulder", 0, "softbox-left", "blue", "crew", "offwhite", "soft"),
    _cell("masculine", 23, "short", 0.0, "softbox-right", "grey", "heather", "navy", "neutral"),
    _cell("feminine", 33, "long", 0, "window", "sage", "vneck", "burgundy", "amused"),
    _cell("masculine", 33, "swept", 6.0, "evening", "clay", "crew", "charcoal", "soft"),
    _cell("feminine", 43, "pixie", 0, "beauty", "paper", "striped", "denim", "calm"),
    _cell("masculine", 43, "sidepart", 1.6, "window", "office", "shirt", "slate", "attentive"),
    _cell("feminine", 53, "bob", 0, "softbox-right", "teal", "shirt", "sand", "smile"),
    _cell("masculine", 53, "crop", 4.0, "overcast", "leaves", "vneck", "forest", "calm"),
    _cell("feminine", 63, "shoulder", 0, "evening", "dusk", "rollneck", "plum", "soft"),
    _cell("masculine", 63, "sidepart", 0.8, "softbox-left", "sand", "rollneck", "teal", "neutral"),
    _cell("feminine", 76, "bob", 0, "overcast", "brick", "crew", "rust", "smile"),
    _cell("masculine", 76, "short", 1.2, "beauty", "night", "shirt", "offwhite", "soft"),
)


def greyness(age: float) -> float:
    return float(np.interp(age, (30, 43, 53, 63, 76, 85), (0.0, 0.12, 0.36, 0.66, 0.94, 1.0)))


def recession(age: float, gender: float) -> float:
    """Hairlines recede with years, and far more in masculine presentation."""
    masculine = float(np.interp(age, (28, 43, 53, 63, 76), (0.0, 0.22, 0.38, 0.50, 0.72)))
    feminine = float(np.interp(age, (45, 63, 80), (0.0, 0.04, 0.10)))
    return feminine + (masculine - feminine) * gender


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The choices from which a person follows; everything else depends on them by rule."""

    preset: str
    gender: float
    age: float
    seed: int
    cut: str
    beard: float
    choice: int = 0
    """Picks among the preset's irides."""


def make_person(draft: Draft) -> Person:
    """The person of a preset at a gender presentation, age and identity."""
    preset = PRESETS[draft.preset]
    # A little tone of its own for every identity; equal over presets, so that cells stay matched.
    shift = np.random.default_rng([draft.seed, 11]).normal(0, (1.6, 0.5, 0.6))
    lab = tuple(round(float(base + change), 2) for base, change in zip(preset.skin_lab, shift))
    return Person(
        seed=draft.seed,
        age=draft.age,
        gender=draft.gender,
        blend=preset.blend,
        features=preset.features,
        skin_lab=lab,
        freckles=preset.freckles if draft.age < 50 else 0.5 * preset.freckles,
        iris=preset.irides[draft.choice % len(preset.irides)],
        hair=Hair(
            cut=draft.cut,
            texture=preset.texture,
            melanin=preset.melanin,
            redness=preset.redness,
            grey=round(greyness(draft.age) * preset.greying, 3),
            recession=round(recession(draft.age, draft.gender), 3),
            beard=round(draft.beard * preset.beard, 2),
            brow_weight=preset.brow_weight,
        ),
    )
