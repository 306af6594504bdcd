"""Apparent age, gender presentation and apparent race: how far an edit moves a face, never who anyone is.

Ten linear heads read a face's description, each trained without one tenth of the people
(`tools/models/train_heads.py`). How far they disagree about a pair says how far to trust their mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillme.core.colour import Floats

Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reading:
    """How a face reads to every head."""

    age: Doubles
    """Years, one number per head."""
    gender: Doubles
    """From about 0, a typical female reading, to about 1, a typical male one; one number per head."""
    race: Doubles
    """The probability of each group's label, in the order of `Heads.groups`, over all heads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How far a reading moved between two pictures of one person."""

    value: float
    half_width: float
    """Of the interval that covers nine in ten known differences."""

    @property
    def is_noise(self) -> bool:
        """Whether no change is within the interval."""
        return abs(self.value) <= self.half_width


@dataclass(frozen=True, slots=True, kw_only=True)
class Conformal:
    """Turns the heads' disagreement into an interval: measured on differences that are known."""

    factor: float
    least: float
    """Added to the disagreement, so that heads that agree by chance are not believed blindly."""

    def difference(self, before: Doubles, after: Doubles) -> Difference:
        """The mean difference over the heads, with its interval."""
        moved = after - before
        spread = float(moved.std(ddof=1)) + self.least
        return Difference(value=float(moved.mean()), half_width=self.factor * spread)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Heads:
    """Linear heads on descriptions of faces."""

    groups: tuple[str, ...]
    centre: Doubles
    spread: Doubles
    age: Doubles
    """One row per head: weights, then the intercept."""
    gender: Doubles
    race: Doubles
    """Heads × groups × weights and intercept."""
    age_interval: Conformal
    gender_interval: Conformal

    def read(self, features: Floats) -> Reading:
        """Read one face."""
        row = np.append((features.astype(np.float64) - self.centre) / self.spread, 1.0)
        scores = self.race @ row
        raised = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares = raised / raised.sum(axis=1, keepdims=True)
        return Reading(age=self.age @ row, gender=self.gender @ row, race=shares.mean(axis=0))

    def arrays(self) -> dict[str, Any]:
        """For the file: weights as half floats, which is far below what calibration notices."""
        half = {name: getattr(self, name).astype(np.float16) for name in ("age", "gender", "race")}
        intervals = [self.age_interval, self.gender_interval]
        return half | {
            "groups": np.array(self.groups),
            "centre": self.centre.astype(np.float32),
            "spread": self.spread.astype(np.float32),
            "intervals": np.array([[one.factor, one.least] for one in intervals]),
        }


def heads_from(data: Mapping[str, NDArray[Any]]) -> Heads:
    """The heads that `arrays` wrote."""
    age, gender = (Conformal(factor=float(row[0]), least=float(row[1])) for row in data["intervals"])
    return Heads(
        groups=tuple(str(group) for group in data["groups"]),
        centre=data["centre"].astype(np.float64),
        spread=data["spread"].astype(np.float64),
        age=data["age"].astype(np.float64),
        gender=data["gender"].astype(np.float64),
        race=data["race"].astype(np.float64),
        age_interval=age,
        gender_interval=gender,
    )


@cache
def heads() -> Heads:
    """The heads that ship with this version."""
    with as_file(files("stillme.instruments").joinpath("heads", "heads.npz")) as path, np.load(path) as data:
        return heads_from(dict(data))
