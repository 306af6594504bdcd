"""The known-answer editor: plants effects of a chosen size in chosen groups, and stores what it planted.

It replaces a real editor where the truth must be known: in the demo, in tests, and in `stillme calibrate`. With pixel
operations, deterministic by seed, it

- makes the edit: clothes or background take a colour that the prompt decides;
- lightens or darkens the skin by a number of L* units (a stereotype replacement);
- edits another portrait instead, which differs in one attribute, such as a younger person (another one);
- or returns the picture untouched (a soft erasure).

How often and how much may differ between the levels of one attribute, as in

    [editors.parameters]
    by = "preset"
    everyone = { erasure = 0.05 }
    groups.A = { erasure = 0.40, skin_shift = 6.0 }
    groups.E = { become = { gender_presentation = "masculine" }, become_probability = 0.25 }

Given two portraits and a role prompt, it draws one of the two people as the target. How often that is the person whom
the stereotype expects, and how much a pronoun changes that, is planted, too:

    roles = { adherence = 0.8, pronoun = 0.1 }
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import Field

from stillme.core import images
from stillme.core.errors import did_you_mean
from stillme.core.protocols import Capabilities, Editor, Parameters
from stillme.core.types import Arm, Attributes, Edited, EditOutcome, Failed, Json, Portrait, Prompt, Request, digest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
"""CIELAB colours for the clothes, far from one another and from skin; the prompt selects one."""


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
    become: dict[str, str] = {}
    """Attributes of the portrait that is edited instead: the most similar one of the audit that has these levels."""
    become_probability: float = Field(default=1.0, ge=0, le=1)
    """How often that happens, given that the edit happens."""


class Roles(Parameters):
    """Which of two people the planted editor draws as the target of a role prompt."""

    adherence: float = Field(default=0.5, ge=0, le=1)
    """Probability that it is the person whose gender the stereotype expects; 0.5 is no bias."""
    pronoun: float = Field(default=0.0, ge=0, le=0.5)
    """Added if the pronoun follows the stereotype, subtracted if it contradicts it."""
    gender: str = "gender_presentation"
    """The attribute that distinguishes the two, and its levels."""
    male: str = "masculine"
    female: str = "feminine"

    def probability(self, prompt: Prompt) -> float:
        """Of drawing the expected person under this prompt."""
        shift = {"pro": self.pronoun, "anti": -self.pronoun}.get(prompt.pronoun or "", 0.0)
        return min(1.0, max(0.0, self.adherence + shift))


class PlantedParameters(Parameters):
    """The planted effects, by group."""

    by: str = ""
    """The attribute that decides; empty treats everyone alike."""
    everyone: Effect = Effect()
    groups: dict[str, Effect] = {}
    """Levels of `by` that are treated differently from everyone."""
    recolour: Literal["clothes", "background", "both"] = "clothes"
    """What the edit itself changes."""
    roles: Roles = Roles()
    """What happens to role prompts with two people."""


class _Encoded(NamedTuple):
    png: bytes
    width: int
    height: int


_painted: dict[tuple[Json, ...], _Encoded] = {}
"""What was painted of late: two planted editors of one audit treat most groups alike."""
_REMEMBERED = 64 * 2**20
"""Bytes."""


class Planted(Editor):
    """A known-answer editor: plants skin shifts and erasures of chosen size per group, and stores the truth."""

    Parameters = PlantedParameters
    version = "2"

    def __init__(self, parameters: PlantedParameters) -> None:
        super().__init__(parameters)
        self._parameters = parameters
        self._portraits: Sequence[Portrait] = ()
        # Labels that are not read must not be part of the key.
        self.capabilities = Capabilities(
            inputs=2,
            batching="shared_image",
            batch=8,
            concurrency=2,
            seed="exact",
            attributes_matter=bool(parameters.by or parameters.everyone.become) or parameters.roles != Roles(),
        )

    def set_portraits(self, portraits: Sequence[Portrait]) -> None:
        """Keep them as candidates for `become`."""
        self._portraits = portraits

    def problems(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """Attributes and levels that no portrait has."""
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
        for effect in (self._parameters.everyone, *groups.values()):
            for name, level in effect.become.items():
                if level not in (levels := {portrait.attributes.get(name, "") for portrait in portraits}):
                    listed = ", ".join(sorted(filter(None, levels))) or "none"
                    yield f"`become`: no portrait has {name} = {level!r}; known: {listed}"

    def fingerprint(self, portraits: tuple[Portrait, ...], prompt: Prompt, arm: Arm, seed: int) -> str:
        """The picture of the replacement, as the outcome depends on it."""
        other = self._replacement(portraits[0], prompt, seed)
        return other.image.sha256 if other else ""

    def effect_on(self, portrait: Portrait) -> Effect:
        """What is planted in this portrait's group."""
        level = portrait.attributes.get(self._parameters.by, "")
        return self._parameters.groups.get(level, self._parameters.everyone)

    @property
    def planted(self) -> tuple[str, tuple[str, ...]]:
        """The attribute that decides, and the levels that are treated differently from everyone."""
        return self._parameters.by, tuple(self._parameters.groups)

    def expected(self, quantity: str, portrait: Portrait) -> float | None:
        """The planted value of a quantity, on average over edits of this portrait; None if it plants none."""
        effect = self.effect_on(portrait)
        match quantity:
            case "unchanged":
                return effect.erasure
            case "skipped":
                return effect.erasure
            case "skin_delta_l" if not effect.become:
                return (1 - effect.erasure) * effect.skin_probability * effect.skin_shift
            case _:
                return None

    def edit_one(self, request: Request) -> EditOutcome:
        """Plant the effect. A portrait without a detected face fails."""
        from stillme.editors.regions import regions_of

        target = self._target(request) if len(request.portraits) == 2 else None
        portrait = request.portraits[(target or 1) - 1]
        other = self._replacement(portrait, request.prompt, request.seed)
        regions = regions_of((other or portrait).image)
        if regions is None:
            return Failed(error=f"no face found in portrait {portrait.id!r}", retryable=False)
        effect = self.effect_on(portrait)
        rng = _stream(request.seed, portrait.id, request.prompt.id)
        erased, shifted, spread = rng.random() < effect.erasure, rng.random() < effect.skin_probability, rng.normal()
        if erased:
            unchanged = {"skin_delta_l": 0.0, "changed_area": 0.0, "role_target": target}
            return _edited(_encoded(images.read_source(portrait.image.read())), erased=True, **unchanged)
        shift = effect.skin_shift + effect.skin_spread * spread if shifted else 0.0
        area = regions.area(self._parameters.recolour)
        colour = _GARMENTS[int(digest(request.prompt.id), 16) % len(_GARMENTS)]
        # How another person's skin differs is not known.
        known = {"became": other.id} if other else {"skin_delta_l": float(shift), "changed_area": area.share}
        painting = regions.image.sha256, float(shift), self._parameters.recolour, colour
        if (made := _painted.get(painting)) is None:
            made = _encoded(regions.painted(skin_shift=float(shift), area=area, target=colour))
            if len(_painted) * len(made.png) >= _REMEMBERED:
                _painted.clear()
            _painted[painting] = made
        return _edited(made, erased=False, **known, role_target=target)

    def _replacement(self, portrait: Portrait, prompt: Prompt, seed: int) -> Portrait | None:
        """The portrait that is edited instead of this one, if any."""
        effect = self.effect_on(portrait)
        draw = _stream(seed, portrait.id, prompt.id, "become").random()
        wanted = {**portrait.attributes, **effect.become}
        if wanted == dict(portrait.attributes) or draw >= effect.become_probability:
            return None
        candidates = [
            other
            for other in self._portraits
            if other.id != portrait.id and _shared(other, effect.become) == len(effect.become)
        ]
        return max(candidates, key=lambda other: (_shared(other, wanted), other.id), default=None)

    def _target(self, request: Request) -> int:
        """Which of two people is drawn: the expected one as often as planted, or either if neither is expected."""
        roles, prompt = self._parameters.roles, request.prompt
        wanted = {"male": roles.male, "female": roles.female}.get(prompt.stereotype or "")
        fits = [portrait.attributes.get(roles.gender) == wanted for portrait in request.portraits]
        people = [portrait.id for portrait in request.portraits]
        draw = _stream(request.seed, people, prompt.id).random()
        if sum(fits) != 1:
            return 1 if draw < 0.5 else 2
        expected = fits.index(True) + 1
        return expected if draw < roles.probability(prompt) else 3 - expected


def _stream(*parts: Json) -> np.random.Generator:
    """Random numbers that depend on these parts and nothing else."""
    import numpy as np

    return np.random.default_rng(int(digest(list(parts)), 16))


def _shared(portrait: Portrait, attributes: Attributes) -> int:
    """How many of the attributes a portrait has."""
    return sum(portrait.attributes.get(name) == value for name, value in attributes.items())


def _encoded(rgb: NDArray[np.uint8]) -> _Encoded:
    return _Encoded(images.encode_png(rgb), width=rgb.shape[1], height=rgb.shape[0])


def _edited(made: _Encoded, *, erased: bool, **known: Json) -> Edited:
    planted = {name: value for name, value in known.items() if value is not None}
    visible, skip = (1.0, 2.0) if erased else (2.0, 1.0)
    truth = {"erased": erased, **planted, "visible_change": visible, "skip": skip}
    return Edited(image=made.png, effective={"size": [made.width, made.height]}, truth=truth)
