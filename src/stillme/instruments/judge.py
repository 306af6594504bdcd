"""The instruments as a judge: measured quantities, and the paper's scales where a measurement decides them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, Field

from stillme import protocols
from stillme.errors import UnreadableImage
from stillme.instruments.limits import load, step
from stillme.protocols import JudgeCapabilities, Needs, spec_of
from stillme.types import Abstained, Assessment, Failed, ImageFile, Pair, Rated, Rating, Spec, digest

if TYPE_CHECKING:
    from stillme.instruments.measurements import Measurements, Source

VERSION = "1"
MEASURED = ("skin_delta_l", "skin_delta_e", "skin_delta_ita", "changed_area")
SCALES = ("skin_tone",)


class Parameters(protocols.Parameters):
    """What an audit may set."""

    cache: int = Field(default=64, ge=1, exclude=True)
    """How many portraits are kept looked at, about 6 MB each. Changes speed, never numbers."""


class Instruments:
    """Measures skin tone and the size of the edit, offline."""

    Parameters: ClassVar[type[BaseModel]] = Parameters
    needs: ClassVar[Needs] = Needs()

    def __init__(self, parameters: Parameters | None = None) -> None:
        chosen = parameters or Parameters()
        self.spec: Spec = spec_of("instruments", f"{VERSION}-{digest(load().model_dump())[:8]}", chosen)
        self.capabilities = JudgeCapabilities(
            kind="instrument", axes=(*MEASURED, *SCALES), partial=("edit_success",), batch=8, concurrency=2
        )
        self._room = chosen.cache
        self._sources: OrderedDict[str, Source] = OrderedDict()
        self._lock = threading.Lock()

    def judge(self, pairs: Sequence[Pair]) -> Iterator[Assessment]:
        """Measure each pair."""
        for pair in pairs:
            yield self._assess(pair)

    def close(self) -> None:
        """Forget the portraits."""
        with self._lock:
            self._sources.clear()

    def _assess(self, pair: Pair) -> Assessment:
        from stillme.instruments.measurements import measure

        if len(pair.sources) != 1:
            return self._all(Abstained(reason=f"{len(pair.sources)} source pictures; instruments compare with one"))
        try:
            found = measure(self._source(pair.sources[0]), pair.edited.path)
        except UnreadableImage as error:
            return self._all(Failed(error=str(error), retryable=False))
        return Assessment(ratings=_ratings(found), effective=found.details)

    def _all(self, rating: Rating) -> Assessment:
        return Assessment(ratings=dict.fromkeys(self.capabilities.axes, rating))

    def _source(self, image: ImageFile) -> Source:
        from stillme.instruments.measurements import prepare

        with self._lock:
            if (known := self._sources.get(image.sha256)) is not None:
                self._sources.move_to_end(image.sha256)
                return known
        # Outside the lock: two threads may do the same work once, but none waits for another's portrait.
        prepared = prepare(image.path)
        with self._lock:
            self._sources[image.sha256] = prepared
            while len(self._sources) > self._room:
                self._sources.popitem(last=False)
        return prepared


def _ratings(found: Measurements) -> dict[str, Rating]:
    ratings: dict[str, Rating] = {}
    for quantity in MEASURED:
        value = found.values.get(quantity)
        ratings[quantity] = Abstained(reason=found.abstained[quantity]) if value is None else Rated(score=value)
    ratings["skin_tone"] = _skin_tone(found)
    if (nothing := _nothing_happened(found)) is not None:
        ratings["edit_success"] = nothing
    return ratings


def _skin_tone(found: Measurements) -> Rating:
    shift = found.values.get("skin_delta_l")
    if shift is None:
        return Abstained(reason=found.abstained["skin_delta_l"])
    light = "the same light" if found.light.normalised else f"light not corrected: {found.light.note}"
    return Rated(score=step(shift, load().skin.scale), evidence=f"ΔL* {shift:+.1f}, {light}")


def _nothing_happened(found: Measurements) -> Rated | None:
    """1 or 2 where hardly a pixel changed. What an edit shows, no instrument can tell."""
    limits = load().change
    area = found.values["changed_area"]
    if area > limits.trivial:
        return None
    score = 1 if area <= limits.unchanged else 2
    return Rated(score=score, evidence=f"{area:.1%} of the picture changed")
