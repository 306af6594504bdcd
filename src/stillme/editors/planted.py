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
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from stillme import colour, faces, images
from stillme.errors import UnreadableImage, did_you_mean
from stillme.protocols import Capabilities, Needs, Parameters, spec_of
from stillme.types import Edited, EditOutcome, Failed, ImageFile, Portrait, Prompt, Request, digest

Mask = NDArray[np.float32]

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

    def objections(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:  # noqa: ARG002
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
        regions = _regions(portrait.image)
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
        truth = Truth(erased=False, skin_delta_l=float(shift), changed_area=float((area > 0.5).mean()))
        return _edited(_painted(regions, area, request.prompt, shift), truth)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Regions:
    """A portrait taken apart. Masks are soft, 0 to 1."""

    rgb: NDArray[np.uint8]
    lab: colour.Floats
    skin: Mask
    clothes: Mask
    background: Mask

    def area(self, what: str) -> Mask:
        if what == "both":
            return np.maximum(self.clothes, self.background)
        return self.clothes if what == "clothes" else self.background


@lru_cache(maxsize=16)
def _regions(image: ImageFile) -> _Regions | None:
    rgb = images.read_rgb(image.path)
    found = faces.find(rgb)
    if not found:
        return None
    mesh = faces.mesh(rgb, found[0])
    lab = colour.to_lab(rgb)
    oval = faces.face_oval(mesh, rgb.shape)
    person = faces.person_mask(rgb)
    tone = np.median(lab[faces.skin_mask(mesh, rgb.shape)], axis=0)
    near_skin = (np.linalg.norm((lab - tone) / np.array([22, 9, 9], dtype=np.float32), axis=-1) < 1) & (person > 0.5)
    chin = float(mesh.points[:, 1].max())
    rows = np.arange(rgb.shape[0], dtype=np.float32)[:, None]
    below = np.clip((rows - chin) / max(1.0, 0.15 * found[0].height), 0, 1)
    soft = max(1.0, mesh.eye_distance / 25)
    skin = np.maximum(_blurred(oval, soft), _blurred(near_skin, soft))
    return _Regions(
        rgb=rgb,
        lab=lab,
        skin=skin,
        clothes=(below * person * (1 - skin)).astype(np.float32),
        background=(1 - person).astype(np.float32),
    )


def _blurred(mask: NDArray[np.bool_], sigma: float) -> Mask:
    return faces.blur(mask.astype(np.float32), sigma)


def _painted(regions: _Regions, area: Mask, prompt: Prompt, shift: float) -> NDArray[np.uint8]:
    """The portrait with `area` in the prompt's colour and the skin `shift` lighter."""
    target = np.array(_GARMENTS[int(digest(prompt.id), 16) % len(_GARMENTS)], dtype=np.float32)
    inside = area > 0.5
    centre = np.median(regions.lab[inside], axis=0) if inside.any() else target
    touched = (area > 0) | (regions.skin > 0)
    # Folds and shading stay: only the middle of the region's colours moves.
    lab = regions.lab[touched] + area[touched, None] * (target - centre)
    lab[:, 0] += np.float32(shift) * regions.skin[touched]
    painted = regions.rgb.copy()
    painted[touched] = colour.to_srgb(colour.lab_to_linear(lab))
    return painted


def _edited(rgb: NDArray[np.uint8], truth: Truth) -> Edited:
    height, width = rgb.shape[:2]
    planted = {"erased": truth.erased, "skin_delta_l": truth.skin_delta_l, "changed_area": truth.changed_area}
    return Edited(image=images.encode_png(rgb), effective={"size": [width, height]}, truth=planted)
