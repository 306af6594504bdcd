"""Do groups differ in light, focus or framing of their pictures? Checked before any edit is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

FLAG = 0.01
"""p-value below which a difference is flagged."""
_PERMUTATIONS = 5000
_SMALLEST = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureProperty:
    """One measured property of a portrait."""

    key: str
    title: str
    unit: str
    scale: float = 1.0
    digits: int = 1
    expected: bool = False
    """Groups may differ in it although the selection is sound."""


PROPERTIES = (
    PictureProperty(key="skin_l", title="skin L*", unit="", digits=0, expected=True),
    PictureProperty(key="skin_ita", title="skin ITA", unit="°", digits=0, expected=True),
    PictureProperty(key="background_l", title="background L*", unit="", digits=0),
    PictureProperty(key="side_light", title="side light", unit="stops", digits=2),
    PictureProperty(key="overexposed", title="burnt out", unit="%", scale=100, digits=1),
    PictureProperty(key="underexposed", title="black", unit="%", scale=100, digits=1),
    PictureProperty(key="sharpness", title="fine detail", unit="grey levels", digits=1),
    PictureProperty(key="face_share", title="face's share", unit="%", scale=100, digits=0),
    PictureProperty(key="yaw_size", title="turned by", unit="°", digits=0),
    PictureProperty(key="smile", title="corners of the mouth", unit="%", scale=100, digits=1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One property over the groups of one attribute."""

    prop: PictureProperty
    means: Mapping[str, float | None]
    counts: Mapping[str, int]
    explained: float | None
    """η²: the share of the property's variance that lies between the groups; None where nothing can be compared."""
    chance: float | None
    """p-value: how often randomly permuted groups explain as much."""

    @property
    def flagged(self) -> bool:
        """Whether groups differ beyond chance in something that they should not differ in."""
        return self.chance is not None and self.chance < FLAG and not self.prop.expected

    def text(self, group: str) -> str:
        """A group's mean as text."""
        mean = self.means[group]
        if mean is None:
            return "–"
        return f"{self.prop.scale * mean + 0.0:.{self.prop.digits}f}".replace("-", "−")


def compare_groups(groups: Sequence[str], values: Sequence[Mapping[str, float]], seed: int = 0) -> list[Comparison]:
    """Every property over the groups of the portraits, in their order."""
    return [_compare(prop, groups, values, np.random.default_rng(seed)) for prop in PROPERTIES]


def _compare(
    prop: PictureProperty, groups: Sequence[str], values: Sequence[Mapping[str, float]], rng: np.random.Generator
) -> Comparison:
    known = [(group, _value(prop.key, measured)) for group, measured in zip(groups, values, strict=True)]
    rows = [(group, value) for group, value in known if value is not None]
    levels = list(dict.fromkeys(groups))
    counts = {level: sum(group == level for group, _ in rows) for level in levels}
    numbers = np.array([value for _, value in rows], dtype=np.float64)
    member = np.array([[group == level for level in levels] for group, _ in rows], dtype=np.float64)
    means = {
        level: float(numbers[member[:, place] > 0].mean()) if counts[level] else None
        for place, level in enumerate(levels)
    }
    explained, chance = (
        _explained(numbers, member, rng) if sum(c >= _SMALLEST for c in counts.values()) > 1 else (None, None)
    )
    return Comparison(prop=prop, means=means, counts=counts, explained=explained, chance=chance)


def _value(key: str, values: Mapping[str, float]) -> float | None:
    if key == "yaw_size":
        return abs(values["yaw"]) if "yaw" in values else None
    return values.get(key)


def _explained(
    numbers: np.ndarray[tuple[int], np.dtype[np.float64]],
    member: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    rng: np.random.Generator,
) -> tuple[float | None, float | None]:
    centred = numbers - numbers.mean()
    total = float((centred**2).sum())
    if total < 1e-12:
        return None, None
    present = member[:, member.sum(axis=0) > 0]
    sizes = present.sum(axis=0)
    observed = float((((centred @ present) ** 2) / sizes).sum()) / total
    permuted = rng.permuted(np.tile(centred, (_PERMUTATIONS, 1)), axis=1)
    by_chance = (((permuted @ present) ** 2) / sizes).sum(axis=1) / total
    return observed, float((1 + (by_chance >= observed - 1e-12).sum()) / (1 + _PERMUTATIONS))
