# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes a face this one: local shape from a seed, the marks of age, the expression."""

from dataclasses import dataclass

import numpy as np

from .mesh import Macro, shape
from .parameters import Person

# Pairs of opposite targets; `*` stands for both sides of the face.
_PAIRED = (
    ("forehead/forehead-scale-vert-decr", "forehead/forehead-scale-vert-incr"),
    ("forehead/forehead-temple-decr", "forehead/forehead-temple-incr"),
    ("forehead/forehead-nubian-decr", "forehead/forehead-nubian-incr"),
    ("head/head-scale-horiz-decr", "head/head-scale-horiz-incr"),
    ("head/head-fat-decr", "head/head-fat-incr"),
    ("nose/nose-width1-decr", "nose/nose-width1-incr"),
    ("nose/nose-width2-decr", "nose/nose-width2-incr"),
    ("nose/nose-width3-decr", "nose/nose-width3-incr"),
    ("nose/nose-scale-vert-decr", "nose/nose-scale-vert-incr"),
    ("nose/nose-hump-decr", "nose/nose-hump-incr"),
    ("nose/nose-volume-decr", "nose/nose-volume-incr"),
    ("nose/nose-point-down", "nose/nose-point-up"),
    ("nose/nose-base-down", "nose/nose-base-up"),
    ("nose/nose-curve-concave", "nose/nose-curve-convex"),
    ("mouth/mouth-scale-horiz-decr", "mouth/mouth-scale-horiz-incr"),
    ("mouth/mouth-upperlip-volume-decr", "mouth/mouth-upperlip-volume-incr"),
    ("mouth/mouth-lowerlip-volume-decr", "mouth/mouth-lowerlip-volume-incr"),
    ("mouth/mouth-cupidsbow-decr", "mouth/mouth-cupidsbow-incr"),
    ("mouth/mouth-trans-down", "mouth/mouth-trans-up"),
    ("chin/chin-width-decr", "chin/chin-width-incr"),
    ("chin/chin-height-decr", "chin/chin-height-incr"),
    ("chin/chin-prominent-decr", "chin/chin-prominent-incr"),
    ("chin/chin-bones-decr", "chin/chin-bones-incr"),
    ("cheek/*-cheek-bones-decr", "cheek/*-cheek-bones-incr"),
    ("cheek/*-cheek-volume-decr", "cheek/*-cheek-volume-incr"),
    ("eyes/*-eye-scale-decr", "eyes/*-eye-scale-incr"),
    ("eyes/*-eye-trans-in", "eyes/*-eye-trans-out"),
    ("eyes/*-eye-corner2-down", "eyes/*-eye-corner2-up"),
    ("eyes/*-eye-push1-in", "eyes/*-eye-push1-out"),
    ("eyes/*-eye-eyefold-down", "eyes/*-eye-eyefold-up"),
    ("ears/*-ear-scale-decr", "ears/*-ear-scale-incr"),
    ("ears/*-ear-wing-decr", "ears/*-ear-wing-incr"),
    ("eyebrows/eyebrows-angle-down", "eyebrows/eyebrows-angle-up"),
    ("eyebrows/eyebrows-trans-down", "eyebrows/eyebrows-trans-up"),
)
_HEAD_SHAPES = ("oval", "round", "square", "rectangular", "triangular", "diamond")
_ASYMMETRIES = (
    "asym-brown-1", "asym-brown-2", "asym-cheek-1", "asym-ear-1", "asym-eye-2", "asym-eye-5", "asym-jaw-1",
    "asym-mouth-1", "asym-mouth-2", "asym-nose-1", "asym-nose-3", "asym-temple-1",
)  # fmt: skip

# How much of a target an old face carries in full; `ageing` says how far it has got.
_AGEING = {
    "head/head-age-incr": 0.50,
    "eyes/*-eye-bag-incr": 0.55,
    "eyes/*-eye-bag-out": 0.35,
    "eyes/*-eye-eyefold-down": 0.45,
    "eyes/*-eye-height2-decr": 0.30,
    "mouth/mouth-laugh-lines-in": 0.55,
    "cheek/*-cheek-trans-down": 0.40,
    "cheek/*-cheek-inner-decr": 0.25,
    "chin/chin-jaw-drop-incr": 0.20,
    "mouth/mouth-upperlip-volume-decr": 0.45,
    "mouth/mouth-lowerlip-volume-decr": 0.30,
    "neck/neck-double-incr": 0.35,
    "nose/nose-point-down": 0.25,
    "nose/nose-scale-vert-incr": 0.20,
    "ears/*-ear-lobe-incr": 0.6,
    "ears/*-ear-scale-incr": 0.3,
    # MakeHuman's old faces pull the mouth down; this keeps them from looking cross.
    "mouth/mouth-angles-up": 0.30,
    "eyebrows/eyebrows-angle-up": 0.35,
}

# What the coarse gender axis leaves out: small, and proportional to the gender parameter.
_FEMININE = {
    "eyes/*-eye-scale-incr": 0.28, "chin/chin-width-decr": 0.25, "chin/chin-bones-decr": 0.35,
    "nose/nose-scale-horiz-decr": 0.25, "nose/nose-volume-decr": 0.20, "mouth/mouth-upperlip-volume-incr": 0.28,
    "mouth/mouth-lowerlip-volume-incr": 0.22, "eyebrows/eyebrows-trans-up": 0.25,
    "forehead/forehead-nubian-incr": 0.15,
}  # fmt: skip
_MASCULINE = {
    "chin/chin-bones-incr": 0.25, "chin/chin-width-incr": 0.20, "chin/chin-height-incr": 0.12,
    "neck/neck-scale-horiz-incr": 0.25, "eyebrows/eyebrows-trans-forward": 0.15,
}  # fmt: skip

EXPRESSIONS: dict[str, dict[str, float]] = {
    "neutral": {"mouth-corner-puller": 0.08, "eye-*-slit": 0.08},
    "soft": {"mouth-corner-puller": 0.28, "eye-*-slit": 0.12},
    "smile": {"mouth-corner-puller": 0.50, "eye-*-slit": 0.18},
    "attentive": {"eyebrows-*-inner-up": 0.12, "eyebrows-*-up": 0.12, "mouth-corner-puller": 0.08, "eye-*-slit": 0.04},
    "calm": {"mouth-corner-puller": 0.18, "eye-*-slit": 0.13},
    "amused": {"mouth-corner-puller": 0.38, "eyebrows-*-extern-up": 0.14, "eye-*-slit": 0.17},
}
"""Expression units by name; all are mild, none opens the mouth."""


def _both_sides(name: str) -> list[str]:
    """`eyes/*-eye-…` names a left and a right target, `eye-*-slit` likewise in full words."""
    if "*" not in name:
        return [name]
    sides = ("left", "right") if "/" not in name else ("l", "r")
    return [name.replace("*", side) for side in sides]


def _local_shape(seed: int, strength: float = 0.75) -> dict[str, float]:
    rng = np.random.default_rng([seed, 1])
    weights: dict[str, float] = {}
    first, second = rng.choice(len(_HEAD_SHAPES), 2, replace=False)
    weights[f"head/head-{_HEAD_SHAPES[first]}"] = float(rng.uniform(0.2, 0.6)) * strength
    weights[f"head/head-{_HEAD_SHAPES[second]}"] = float(rng.uniform(0.0, 0.3)) * strength
    for less, more in _PAIRED:
        weight = float(np.clip(rng.normal(0, 0.36), -0.75, 0.75)) * strength
        for name in _both_sides(more if weight > 0 else less):
            weights[name] = abs(weight)
    for name in _ASYMMETRIES:
        side = "l" if rng.random() < 0.5 else "r"
        weights[f"asym/{name}-{side}"] = float(abs(rng.normal(0, 0.18))) * strength
    return weights


def ageing(age: float) -> float:
    """0 until 26, 1 from 74 on, faster at first: the marks of age, not the years."""
    return float(np.clip((age - 26) / 48, 0, 1) ** 0.8)


@dataclass(frozen=True)
class BrowShape:
    """An identity's own eyebrows."""

    arch: float
    height: float
    thickness: float
    inner: float
    outer: float
    density: float


def brow_shape(person: Person) -> BrowShape:
    rng = np.random.default_rng([person.seed, 2])
    masculine = person.gender
    return BrowShape(
        arch=float(rng.uniform(0.025, 0.065)) - 0.012 * masculine,
        height=float(rng.uniform(-0.012, 0.014)) - 0.012 * masculine - 0.012 * ageing(person.age),
        thickness=float(rng.uniform(0.018, 0.025))
        * (1 + 0.50 * masculine)
        * person.hair.brow_weight ** (0.6 + 0.4 * masculine),
        inner=float(rng.uniform(0.095, 0.14)),
        outer=float(rng.uniform(0.50, 0.56)),
        density=float(rng.uniform(0.75, 1.15)) * (1 - 0.2 * ageing(person.age) * (1 - masculine)),
    )


def shaped_vertices(person: Person, expression: str) -> np.ndarray:
    """The base mesh as this person with this expression."""
    details = _local_shape(person.seed)
    for name, weight in person.features:
        for one in _both_sides(name):
            details[one] = details.get(one, 0.0) + weight
    for traits, amount in ((_FEMININE, 1 - person.gender), (_MASCULINE, person.gender)):
        for name, weight in traits.items():
            for one in _both_sides(name):
                details[one] = details.get(one, 0.0) + weight * amount
    for name, weight in _AGEING.items():
        for one in _both_sides(name):
            # Ageing as MakeHuman has it coarsens a face; feminine presentation carries less of it.
            details[one] = details.get(one, 0.0) + weight * ageing(person.age) * (0.62 + 0.38 * person.gender)
    units = {one: weight for name, weight in EXPRESSIONS[expression].items() for one in _both_sides(name)}
    # MakeHuman's own axis reads young, so the years are stretched; the fuller face of the middle years is `weight`.
    years = 25 + (person.age - 25) * (1.15 + 0.15 * person.gender) if person.age > 25 else person.age
    middle = float(np.exp(-(((person.age - 55) / 18) ** 2)))
    macro = Macro(years=years, gender=person.gender, blend=person.blend, weight=0.48 + 0.10 * middle)
    return shape(macro, details, units)
