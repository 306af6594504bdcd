"""What an extractor returns: seven dimensions of appearance, and one sentence that asks to keep them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from stillme.core.capabilities import Needs
from stillme.core.types import Failed, ImageFile, Json, Spec, digest
from stillme.mitigation.labels import Label, lint

DIMENSIONS = ("skin_tone", "face_shape", "eyes", "nose", "lips", "hair", "distinctive_features")
"""The paper's names (Listing 2), in its order."""

OPENING = "Maintain the person's"
"""How every feature sentence begins (Listing 2)."""

MOST_WORDS = 90
"""The paper asks for one or two concise sentences; its examples have up to 30 words."""

_OPENING = re.compile(r"Maintain the person['’]s\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """A person's appearance, in words that name no demographic group."""

    dimensions: Mapping[str, str]
    """By the names of `DIMENSIONS`; those that could not be seen are missing."""
    sentence: str
    """`Maintain the person's …`"""

    def problems(self) -> Iterator[str]:
        """Why these features must not reach an editor, each as a sentence."""
        for name, text in {**self.dimensions, "identity_prompt": self.sentence}.items():
            # The field alone says that a tone is the skin's: "aged" or "colored" is a label there.
            phrase = f"{text} skin" if name == "skin_tone" and "skin" not in text.casefold() else text
            yield from (f"{name}: {label}" for label in lint(phrase))
        if not _OPENING.match(self.sentence):
            yield f"identity_prompt: does not begin with {OPENING!r}"
        if (words := len(self.sentence.split())) > MOST_WORDS:
            yield f"identity_prompt: has {words} words, more than {MOST_WORDS}"

    @property
    def labels(self) -> tuple[Label, ...]:
        """The demographic labels in the sentence; an extractor returns only features without any."""
        return lint(self.sentence)


def _nothing() -> Mapping[str, Json]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A description that names no demographic group."""

    features: Features
    raw: str | None = None
    """The raw answers, including a rejected first one."""
    effective: Mapping[str, Json] = field(default_factory=_nothing)
    """The settings that really applied, or the measurements behind the words."""
    cost: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """The extractor refused to describe this person, or found nobody. A finding, never an error."""

    reason: str
    raw: str | None = None
    effective: Mapping[str, Json] = field(default_factory=_nothing)
    cost: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """The answer was rejected twice, the second time after the extractor was told why."""

    problem: str
    raw: str | None = None
    effective: Mapping[str, Json] = field(default_factory=_nothing)
    cost: float = 0.0


Extraction = Described | Declined | Unusable | Failed


class Extractor(Protocol):
    """Describes the person in an image. Failures are values, not exceptions."""

    @property
    def spec(self) -> Spec:
        """The extractor, and every setting that can change its words."""
        ...

    @property
    def needs(self) -> Needs:
        """What the machine must have."""
        ...

    @property
    def concurrency(self) -> int:
        """Images that may be described at once."""
        ...

    def problems(self) -> Iterator[str]:
        """What would go wrong, one sentence per problem, before the first image."""
        ...

    def extract(self, image: ImageFile) -> Extraction:
        """Describe one image, in at most two attempts."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


def extraction_key(image: ImageFile, extractor: Spec) -> str:
    """The key of one extraction: the same image and settings are never paid for twice."""
    return digest([image.sha256, extractor.key])


def listed(phrases: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b, and c`, as in the paper's examples."""
    *first, last = phrases
    if not first:
        return last
    return f"{', '.join(first)}, and {last}" if len(first) > 1 else f"{first[0]} and {last}"
