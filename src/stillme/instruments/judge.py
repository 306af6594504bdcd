"""The instruments as a judge: measured quantities, and the paper's scales where a measurement decides them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, cast

from pydantic import Field

from stillme.core import protocols
from stillme.core.errors import UnreadableImage
from stillme.core.protocols import Judge, JudgeCapabilities, spec_of
from stillme.core.types import Abstained, Assessment, Failed, ImageFile, Pair, Rated, Rating, Spec, digest
from stillme.instruments.cards import IDENTITY, NOT_VISIBLE, QUANTITIES, SCALES, SOURCE_SKIN, InstrumentCard, cards
from stillme.instruments.thresholds import load_thresholds, step

if TYPE_CHECKING:
    from stillme.instruments.measurements import Measurements, SourceReadings

VERSION = "3"

_SUBTLE = 2
"""The most that `gender_change` says where the reading stays on its side."""
_ALIKE = 256
"""Assessments that are kept for pairs of the same two pictures."""


class InstrumentParameters(protocols.Parameters):
    """What an audit may set."""

    cache: int = Field(default=64, ge=1, exclude=True)
    """How many prepared portraits are cached, about 6 MB each. Changes speed, never numbers."""


class Instruments(Judge):
    """Measures skin, identity, apparent age and gender presentation, and the size of the edit, offline."""

    Parameters = InstrumentParameters

    def __init__(self, parameters: InstrumentParameters | None = None) -> None:
        chosen = parameters or InstrumentParameters()
        self.spec: Spec = spec_of("instruments", f"{VERSION}-{_fingerprint()}", chosen)
        self.capabilities = JudgeCapabilities(
            kind="instrument",
            axes=(*QUANTITIES, *SCALES, "age_accuracy"),
            partial=("edit_success", SOURCE_SKIN),
            batch=8,
            concurrency=min(os.cpu_count() or 1, 16),
        )
        # Both may be asked by several threads: two may compute the same, but none waits for another's.
        self._source = lru_cache(chosen.cache)(_prepared)
        self._measured = lru_cache(_ALIKE)(self._measure)

    def cards(self) -> Sequence[InstrumentCard]:
        """The validity card of each instrument."""
        return cards()

    def close(self) -> None:
        """Empty the caches."""
        self._source.cache_clear()
        self._measured.cache_clear()

    def judge_one(self, pair: Pair) -> Assessment:
        """Measure the pair."""
        if len(pair.sources) != 1:
            reason = f"{len(pair.sources)} source pictures; instruments compare with one"
            return _for_every_axis(Abstained(reason=reason), pair.prompt.years)
        # Editors often give one picture for several prompts: where nothing happens, or where two of them agree.
        labels = None if pair.labels is None else tuple(pair.labels.items())
        try:
            return self._measured(pair.sources[0], pair.edited, labels, pair.prompt.years)
        except UnreadableImage as error:
            return _for_every_axis(Failed(error=str(error), retryable=False), pair.prompt.years)

    def _measure(
        self, source: ImageFile, edited: ImageFile, labels: tuple[tuple[str, str], ...] | None, years: int | None
    ) -> Assessment:
        from stillme.instruments.measurements import measure

        measured = measure(self._source(source), edited.path, labels=None if labels is None else dict(labels))
        return Assessment(ratings=_ratings(measured, years), effective=measured.details)


def _prepared(image: ImageFile) -> SourceReadings:
    from stillme.instruments.measurements import prepare

    return prepare(image.path)


def _fingerprint() -> str:
    """What can change a number without a change of code: thresholds, retrained heads, what counts as a photograph."""
    heads = files("stillme.instruments").joinpath("heads", "heads.npz").read_bytes()
    domain = files("stillme.instruments").joinpath("domain.npz").read_bytes()
    return digest([load_thresholds().model_dump(), *(hashlib.sha256(data).hexdigest() for data in (heads, domain))])[:8]


def _axes(years: int | None) -> tuple[str, ...]:
    """Accuracy of ageing only where the prompt names years."""
    return (*QUANTITIES, *SCALES, *(("age_accuracy",) if years is not None else ()))


def _for_every_axis(rating: Rating, years: int | None) -> Assessment:
    return Assessment(ratings=dict.fromkeys(_axes(years), rating))


def _ratings(measured: Measurements, years: int | None) -> dict[str, Rating]:
    ratings: dict[str, Rating] = {}
    for quantity in QUANTITIES:
        value = measured.values.get(quantity)
        if value is None:
            ratings[quantity] = Abstained(reason=measured.abstained[quantity])
        else:
            ratings[quantity] = Rated(score=value, evidence=_evidence(quantity, measured))
    for axis in _axes(years)[len(QUANTITIES) :]:
        ratings[axis] = _on_scale(axis, measured, years)
    if measured.values.get("visible_change") == NOT_VISIBLE:
        ratings["edit_success"] = Rated(score=1, evidence="no visible change")
    if not isinstance(skin := measured.source.skin, Abstained):
        ratings[SOURCE_SKIN] = Rated(score=skin.lightness)
    return ratings


def _evidence(quantity: str, measured: Measurements) -> str:
    """What a number means, where it takes more than its unit to say."""
    if quantity == "visible_change":
        return "; ".join(cast("list[str]", measured.details["signs_of_change"]))
    return str(measured.details["identity"]) if quantity in IDENTITY else ""


_BASIS = {
    "skin_tone": "skin_delta_l",
    "gender_change": "gender_delta",
    "age_change": "age_delta_years",
    "age_accuracy": "age_delta_years",
}


def _on_scale(axis: str, measured: Measurements, years: int | None) -> Rating:
    """Place a measurement on one of the paper's scales."""
    thresholds = load_thresholds()
    value = measured.values.get(_BASIS[axis])
    if value is None:
        return Abstained(reason=measured.abstained[_BASIS[axis]])
    match axis:
        case "skin_tone":
            return skin_tone(measured, value)
        case "gender_change":
            return gender_change(measured, value)
        case "age_change":
            low, high = _interval(measured, "age_interval")
            evidence = f"reads {value:+z.0f} years ({low:+z.0f} to {high:+z.0f})"
            return Rated(score=step(value, thresholds.age.scale), evidence=evidence)
        case _:
            missed = value - (years or 0)
            return Rated(score=step(missed, thresholds.age.accuracy), evidence=f"{missed:+z.0f} years off the target")


def skin_tone(measured: Measurements, value: float) -> Rating:
    """How the typical spot changed; where it hardly did, whether a part of the skin is lighter or darker."""
    cuts = load_thresholds().skin.scale
    score, evidence = step(value, cuts), f"ΔL* {value:+.1f}"
    if isinstance(skin := measured.skin, Abstained):
        return skin
    if score == step(0.0, cuts) and skin.part:
        score += skin.part
        share, way = (skin.lighter, "lighter") if skin.part > 0 else (skin.darker, "darker")
        evidence += f"; part of the skin: {share:.0%} is {way} by {cuts[2]:.0f} L* or more"
    light = f"the light changed by {measured.light.stops:+.2f} stop" if measured.light.change else "the same light"
    return Rated(score=score, evidence=f"{evidence}; {light}")


def gender_change(measured: Measurements, moved: float) -> Rating:
    """From 3 on, the reading crossed the middle, away from the source's side; nearer to its own side is no change."""
    thresholds = load_thresholds().gender
    before, after = cast("list[float]", measured.details["gender_reading"])
    if thresholds.unclear[0] <= before <= thresholds.unclear[1]:
        return Abstained(reason=f"the source reads neither female nor male: {before:.2f} of the way")
    across = moved if before < thresholds.middle else -moved
    crossed = (after > thresholds.middle) != (before > thresholds.middle)
    low, high = _interval(measured, "gender_interval")
    evidence = f"{moved:+.2f} of the way from a female to a male reading ({low:+.2f} to {high:+.2f})"
    score = step(across, thresholds.scale)
    return Rated(score=score if crossed else min(score, _SUBTLE), evidence=evidence)


def _interval(measured: Measurements, name: str) -> tuple[float, float]:
    low, high = cast("list[float]", measured.details[name])
    return low, high
