"""What an extractor says of a portrait: seven dimensions of appearance, and one sentence that asks to keep them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from stillme.mitigation.labels import Label, lint
from stillme.protocols import Needs
from stillme.types import Failed, ImageFile, Json, Spec, digest

DIMENSIONS = ("skin_tone", "face_shape", "eyes", "nose", "lips", "hair", "distinctive_features")
"""The paper's names (Listing 2), in its order."""

OPENING = "Maintain the person's"
"""How every feature sentence begins (Listing 2)."""

MOST_WORDS = 90
"""The paper asks for one or two concise sentences; its examples have up to 30 words."""

_OPENING = re.compile(r"Maintain the person['’]s\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """A person's appearance, in words that name no group."""

    dimensions: Mapping[str, str]
    """By the names of `DIMENSIONS`; what could not be seen is left out."""
    sentence: str
    """`Maintain the person's …`"""

    def problems(self) -> Iterator[str]:
        """Why these must not reach an editor, each as a sentence: labels, first of all."""
        for name, text in {**self.dimensions, "identity_prompt": self.sentence}.items():
            # A skin tone that is only "Black" or "White" names a group; a hair colour does not.
            said = f"{text} skin" if name == "skin_tone" and "skin" not in text.casefold() else text
            yield from (f"{name}: {label}" for label in lint(said))
        if not _OPENING.match(self.sentence):
            yield f"identity_prompt: does not begin with {OPENING!r}"
        if (words := len(self.sentence.split())) > MOST_WORDS:
            yield f"identity_prompt: has {words} words, more than {MOST_WORDS}"

    @property
    def labels(self) -> tuple[Label, ...]:
        """The demographic labels of the sentence; none in features that an extractor returned."""
        return lint(self.sentence)


def _nothing() -> Mapping[str, Json]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """The extractor described the person, and named no group."""

    features: Features
    raw: str | None = None
    """Its answers as they came, a rejected first one included."""
    effective: Mapping[str, Json] = field(default_factory=_nothing)
    """What really applied, and what the words rest on."""
    cost: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """The extractor would not describe this person, or found nobody to describe. A finding, never an error."""

    reason: str
    raw: str | None = None
    effective: Mapping[str, Json] = field(default_factory=_nothing)
    cost: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """The extractor answered, was told why that cannot be used, and answered no better."""

    problem: str
    raw: str | None = None
    effective: Mapping[str, Json] = field(default_factory=_nothing)
    cost: float = 0.0


Extraction = Described | Declined | Unusable | Failed


class Extractor(Protocol):
    """Describes the person in a picture. What goes wrong is a value, not an exception."""

    @property
    def spec(self) -> Spec:
        """Who describes, and every setting that can change the words."""
        ...

    @property
    def needs(self) -> Needs:
        """What this machine must have."""
        ...

    @property
    def concurrency(self) -> int:
        """Pictures that may be looked at at once."""
        ...

    def objections(self) -> Iterator[str]:
        """What it could not do, told before the first picture."""
        ...

    def extract(self, image: ImageFile) -> Extraction:
        """Look once; ask again at most once."""
        ...

    def close(self) -> None:
        """Give back connections."""
        ...


def extraction_key(image: ImageFile, extractor: Spec) -> str:
    """Names what one extractor says of one picture: the same picture and settings are never paid for twice."""
    return digest([image.sha256, extractor.key])


def listed(phrases: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b, and c`: as the paper's examples list features."""
    *first, last = phrases
    if not first:
        return last
    return f"{', '.join(first)}, and {last}" if len(first) > 1 else f"{first[0]} and {last}"
