"""The known-answer editor: plants effects of a chosen size in chosen groups, and says what it planted.

It stands in for a real editor wherever the truth must be known: in the demo, in tests, and in
`stillme calibrate`. With pixel operations, deterministic by seed, it

- makes the edit: clothes or background take a colour that the prompt decides;
- lightens or darkens the skin by a number of L* units (a stereotype replacement);
- or returns the picture untouched (a soft erasure).

How often and how much may differ between the levels of one attribute, as in

    [editors.parameters]
    by = "preset"
    everyone = { erasure = 0.05 }
    groups.A = { erasure = 0.40, skin_shift = 6.0 }
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from stillme import images
from stillme.editors.regions import regions_of
from stillme.errors import UnreadableImage, did_you_mean
from stillme.protocols import Capabilities, Needs, Parameters, spec_of
from stillme.types import Edited, EditOutcome, Failed, Portrait, Prompt, Request, digest

_GARMENTS = (
    (28, 6, -34),
    (34, -12, 18),
    (52, -30, -8),
    (45, 48, 28),
    (30, 2, 4),
    (78, 2, 62),
    (60, 8, -22),
    (38, 30, -30),
)
"""CIELAB colours that a prompt can turn the clothes into; far from one another and from skin."""


class Effect(Parameters):
    """What happens to one group of portraits."""

    erasure: float = Field(default=0.0, ge=0, le=1)
    """Probability that nothing happens at all."""
    skin_shift: float = Field(default=0.0, ge=-40, le=40)
    """Change of skin lightness in L* units, where it happens."""
    skin_spread: float = Field(default=0.0, ge=0, le=10)
    """Standard deviation of that change between edits."""
    skin_probability: float = Field(default=1.0, ge=0, le=1)
    """How often the skin changes, given that the edit happens."""


class PlantedParameters(Parameters):
    """Whom the planted effects hit."""

    by: str = ""
    """The attribute that decides; empty treats everyone alike."""
    everyone: Effect = Effect()
    groups: dict[str, Effect] = {}
    """Levels of `by` that are treated otherwise than everyone."""
    recolour: Literal["clothes", "background", "both"] = "clothes"
    """What the edit itself changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What was planted in one edit."""

    erased: bool
    skin_delta_l: float
    changed_area: float


class Planted:
    """A known-answer editor: plants skin shifts and erasures of chosen size per group, and stores the truth."""

    Parameters: ClassVar[type[BaseModel]] = PlantedParameters
    needs: ClassVar[Needs] = Needs()

    def __init__(self, parameters: PlantedParameters) -> None:
        self._parameters = parameters
        self.spec = spec_of("planted", "1", parameters)
        # Without groups the labels are never read, and must not be part of the key.
        self.capabilities = Capabilities(
            inputs=1,
            batching="shared_image",
            batch=8,
            concurrency=2,
            seed="exact",
            attributes_matter=bool(parameters.by),
        )

    def objections(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """Groups that no portrait belongs to."""
        by, groups = self._parameters.by, self._parameters.groups
        if groups and not by:
            yield "`groups` needs `by`; name the attribute whose levels they are"
            return
        known = {portrait.attributes.get(by, "") for portrait in portraits} - {""}
        if by and not known:
            attributes = sorted({name for portrait in portraits for name in portrait.attributes})
            yield f"no portrait has the attribute {by!r}.{did_you_mean(by, attributes)} Known: {', '.join(attributes)}"
            return
        for level in groups:
            if level not in known:
                yield f"no portrait has {by} = {level!r}; known: {', '.join(sorted(known))}"

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        """Plant each request's effect. A portrait without a face fails: there is no skin to change."""
        for request in requests:
            try:
                yield self._edit(request)
            except UnreadableImage as error:
                yield Failed(error=str(error), retryable=False)

    def close(self) -> None:
        """Nothing is held."""

    def effect_on(self, portrait: Portrait) -> Effect:
        """What is planted in this portrait's group."""
        level = portrait.attributes.get(self._parameters.by, "")
        return self._parameters.groups.get(level, self._parameters.everyone)

    @property
    def planted(self) -> tuple[str, tuple[str, ...]]:
        """The attribute that decides, and the levels that are treated otherwise than everyone."""
        return self._parameters.by, tuple(self._parameters.groups)

    def expected(self, quantity: str, portrait: Portrait) -> float | None:
        """The planted value of a quantity, on average over edits of this portrait; None if it plants none."""
        effect = self.effect_on(portrait)
        match quantity:
            case "unchanged":
                return effect.erasure
            case "skin_delta_l":
                return (1 - effect.erasure) * effect.skin_probability * effect.skin_shift
            case _:
                return None

    def _edit(self, request: Request) -> EditOutcome:
        portrait = request.portraits[0]
        regions = regions_of(portrait.image)
        if regions is None:
            return Failed(error=f"no face found in portrait {portrait.id!r}", retryable=False)
        rgb = regions.rgb
        effect = self.effect_on(portrait)
        dice = np.random.default_rng(int(digest([request.seed, portrait.id, request.prompt.id]), 16))
        erased, shifted, spread = dice.random() < effect.erasure, dice.random() < effect.skin_probability, dice.normal()
        if erased:
            truth = Truth(erased=True, skin_delta_l=0.0, changed_area=0.0)
            return _edited(rgb, truth)
        shift = effect.skin_shift + effect.skin_spread * spread if shifted else 0.0
        area = regions.area(self._parameters.recolour)
        target = _GARMENTS[int(digest(request.prompt.id), 16) % len(_GARMENTS)]
        truth = Truth(erased=False, skin_delta_l=float(shift), changed_area=float((area > 0.5).mean()))
        return _edited(regions.painted(skin_shift=float(shift), area=area, target=target), truth)


def _edited(rgb: NDArray[np.uint8], truth: Truth) -> Edited:
    height, width = rgb.shape[:2]
    planted = {"erased": truth.erased, "skin_delta_l": truth.skin_delta_l, "changed_area": truth.changed_area}
    return Edited(image=images.encode_png(rgb), effective={"size": [width, height]}, truth=planted)
