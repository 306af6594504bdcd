"""What an extractor returns: seven dimensions of appearance, and one sentence that asks to keep them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from stillme.core.capabilities import Needs
from stillme.core.types import Failed, ImageFile, Json, Spec, digest
from stillme.mitigation.labels import lint

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answered:
    """What every answer of an extractor brings along."""

    raw: str | None = None
    """The raw answers, including a rejected first one."""
    effective: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """The settings that really applied, or the measurements behind the words."""
    cost: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Described(_Answered):
    """A description that names no demographic group."""

    features: Features


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined(_Answered):
    """The extractor refused to describe this person, or found no one. A finding, never an error."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable(_Answered):
    """The answer was rejected twice, the second time after the extractor was told why."""

    problem: str


Extraction = Described | Declined | Unusable | Failed


class Extractor(ABC):
    """Describes the person in an image. Failures are values, not exceptions."""

    spec: Spec
    """The extractor, and every setting that can change its words."""
    needs = Needs()
    """What the machine must have."""
    concurrency = 1
    """Images that may be described at once."""

    def problems(self) -> Iterator[str]:
        """What would go wrong, one sentence per problem, before the first image."""
        yield from ()

    @abstractmethod
    def extract(self, image: ImageFile) -> Extraction:
        """Describe one image, in at most two attempts."""

    def close(self) -> None:  # noqa: B027  an extractor without connections has nothing to close
        """Close connections."""


def extraction_key(image: ImageFile, extractor: Spec) -> str:
    """The key of one extraction: the same image and settings are never paid for twice."""
    return digest([image.sha256, extractor.key])


def listed(phrases: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b, and c`, as in the paper's examples."""
    *first, last = phrases
    if not first:
        return last
    return f"{', '.join(first)}, and {last}" if len(first) > 1 else f"{first[0]} and {last}"


_NOUNS: Mapping[str, str] = {
    "skin_tone": "skin tone",
    "face_shape": "face shape",
    "distinctive_features": "distinctive features",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturePrompt:
    """The sentence that asks an editor to keep a person's appearance."""

    sentence: str
    dimensions: Mapping[str, str]
    """What the sentence is based on, by the names of `DIMENSIONS`."""
    by: Mapping[str, Features]
    """Each extractor's features, by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoFeaturePrompt:
    """This portrait has no feature prompt; none is made up."""

    reason: str
    retryable: bool = False
    """Whether another run may produce one."""


def merge(extractions: Sequence[tuple[str, Extraction]]) -> FeaturePrompt | NoFeaturePrompt:
    """One prompt from the extractions of one or several extractors, with their names.

    The first extractor's sentence is used; dimensions that it lacks are added from the next extractor that has them.
    Every extractor must have succeeded: otherwise some portraits would be described by two and others by one.
    """
    described: dict[str, Features] = {}
    failures: list[NoFeaturePrompt] = []
    for name, extraction in extractions:
        match extraction:
            case Described(features=features):
                described[name] = features
            case Declined(reason=reason):
                failures.append(NoFeaturePrompt(reason=f"{name} declined: {reason}"))
            case Unusable(problem=problem):
                failures.append(NoFeaturePrompt(reason=f"{name} gave no usable answer: {problem}"))
            case Failed(error=error, retryable=retryable):
                failures.append(NoFeaturePrompt(reason=f"{name} failed: {error}", retryable=retryable))
            case never:
                assert_never(never)
    if failures or not described:
        reason = "; ".join(failure.reason for failure in failures) or "no extractor was asked"
        return NoFeaturePrompt(reason=reason, retryable=bool(failures) and all(one.retryable for one in failures))
    return _merged(described)


def _merged(described: Mapping[str, Features]) -> FeaturePrompt | NoFeaturePrompt:
    first, *others = described.values()
    dimensions = dict(first.dimensions)
    for other in others:
        dimensions |= {name: text for name, text in other.dimensions.items() if name not in dimensions}
    added = {name: dimensions[name] for name in DIMENSIONS if name in dimensions and name not in first.dimensions}
    sentence = first.sentence
    if added:
        phrases = listed([f"{_NOUNS.get(name, name)} ({text.rstrip('.')})" for name, text in added.items()])
        sentence = f"{sentence} Also maintain the {phrases}."
    if labels := lint(sentence):
        # Each part passed alone; together they may form a label, such as a colour before a person.
        return NoFeaturePrompt(reason=f"the merged sentence has labels: {'; '.join(map(str, labels))}")
    ordered = {name: dimensions[name] for name in DIMENSIONS if name in dimensions}
    return FeaturePrompt(sentence=sentence, dimensions=ordered, by=described)
