"""The instruments as a judge: measured quantities, and the paper's scales where a measurement decides them."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import asdict
from importlib.resources import files
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar, cast

from pydantic import BaseModel, Field

from stillme.core import protocols
from stillme.core.errors import UnreadableImage
from stillme.core.protocols import JudgeCapabilities, Needs, spec_of
from stillme.core.types import Abstained, Assessment, Failed, ImageFile, Pair, Prompt, Rated, Rating, Spec, digest
from stillme.instruments.cards import Card, cards
from stillme.instruments.quantities import IDENTITY, NOT_VISIBLE, QUANTITIES, SCALES, SOURCE_SKIN
from stillme.instruments.thresholds import load_thresholds, step

if TYPE_CHECKING:
    from stillme.instruments.measurements import Measurements, Source

VERSION = "3"

_SUBTLE = 2
"""The most that `gender_change` says where the reading stays on its side."""
_ALIKE = 256
"""Assessments that are kept for pairs of the same two pictures."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Parameters(protocols.Parameters):
    """What an audit may set."""

    cache: int = Field(default=64, ge=1, exclude=True)
    """How many prepared portraits are cached, about 6 MB each. Changes speed, never numbers."""


class Instruments:
    """Measures skin, identity, apparent age and gender presentation, and the size of the edit, offline."""

    Parameters: ClassVar[type[BaseModel]] = Parameters
    needs: ClassVar[Needs] = Needs()

    def __init__(self, parameters: Parameters | None = None) -> None:
        chosen = parameters or Parameters()
        self.spec: Spec = spec_of("instruments", f"{VERSION}-{_fingerprint()}", chosen)
        self.capabilities = JudgeCapabilities(
            kind="instrument",
            axes=(*QUANTITIES, *SCALES, "age_accuracy"),
            partial=("edit_success", SOURCE_SKIN),
            batch=8,
            concurrency=min(os.cpu_count() or 1, 16),
        )
        self._sources: _Recent[str, Source] = _Recent(chosen.cache)
        self._assessments: _Recent[Hashable, Assessment] = _Recent(_ALIKE)

    def judge(self, pairs: Sequence[Pair]) -> Iterator[Assessment]:
        """Measure each pair."""
        for pair in pairs:
            yield self._assess(pair)

    def cards(self) -> Sequence[Card]:
        """The validity card of each instrument."""
        return cards()

    def close(self) -> None:
        """Empty the caches."""
        self._sources.clear()
        self._assessments.clear()

    def _assess(self, pair: Pair) -> Assessment:
        if len(pair.sources) != 1:
            reason = f"{len(pair.sources)} source pictures; instruments compare with one"
            return _for_every_axis(Abstained(reason=reason), pair.prompt)
        # Editors often give one picture for several prompts: where nothing happens, or where two of them agree.
        labels = frozenset(pair.labels.items()) if pair.labels is not None else None
        seen = (pair.sources[0].sha256, pair.edited.sha256, labels, pair.prompt.years)
        try:
            return self._assessments.get(seen, lambda: self._measured(pair))
        except UnreadableImage as error:
            return _for_every_axis(Failed(error=str(error), retryable=False), pair.prompt)

    def _measured(self, pair: Pair) -> Assessment:
        from stillme.instruments.measurements import measure

        measured = measure(self._source(pair.sources[0]), pair.edited.path, labels=pair.labels)
        return Assessment(ratings=_ratings(measured, pair.prompt), effective=measured.details)

    def _source(self, image: ImageFile) -> Source:
        from stillme.instruments.measurements import prepare

        return self._sources.get(image.sha256, lambda: prepare(image.path))


class _Recent(Generic[K, V]):
    """What was computed last, up to so many. Threads may ask at once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K, compute: Callable[[], V]) -> V:
        """The value under that key, computed where it is not known."""
        with self._lock:
            if (known := self._values.get(key)) is not None:
                self._values.move_to_end(key)
                return known
        # Outside the lock: two threads may compute the same, but none waits for another's.
        value = compute()
        with self._lock:
            self._values[key] = value
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        return value

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._values.clear()


def _fingerprint() -> str:
    """What can change a number without a change of code: thresholds, retrained heads, what counts as a photograph."""
    heads = files("stillme.instruments").joinpath("heads", "heads.npz").read_bytes()
    domain = files("stillme.instruments").joinpath("domain.npz").read_bytes()
    return digest([asdict(load_thresholds()), *(hashlib.sha256(data).hexdigest() for data in (heads, domain))])[:8]


def _axes(prompt: Prompt) -> tuple[str, ...]:
    """The axes of a prompt's edits: accuracy of ageing only where the prompt names years."""
    return (*QUANTITIES, *SCALES, *(("age_accuracy",) if prompt.years is not None else ()))


def _for_every_axis(rating: Rating, prompt: Prompt) -> Assessment:
    return Assessment(ratings=dict.fromkeys(_axes(prompt), rating))


def _ratings(measured: Measurements, prompt: Prompt) -> dict[str, Rating]:
    ratings: dict[str, Rating] = {}
    for quantity in QUANTITIES:
        value = measured.values.get(quantity)
        if value is None:
            ratings[quantity] = Abstained(reason=measured.abstained[quantity])
        else:
            ratings[quantity] = Rated(score=value, evidence=_evidence(quantity, measured))
    for axis in _axes(prompt)[len(QUANTITIES) :]:
        ratings[axis] = _on_scale(axis, measured, prompt)
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


def _on_scale(axis: str, measured: Measurements, prompt: Prompt) -> Rating:
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
            evidence = f"reads {value:+.0f} years ({low:+.0f} to {high:+.0f})"
            return Rated(score=step(value, thresholds.age.scale), evidence=evidence)
        case _:
            missed = value - (prompt.years or 0)
            return Rated(score=step(missed, thresholds.age.accuracy), evidence=f"{missed:+.0f} years off the target")


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
