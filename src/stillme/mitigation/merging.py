"""From what the extractors say to one feature prompt, or to the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from stillme.mitigation.features import DIMENSIONS, Declined, Described, Extraction, Features, Unusable, listed
from stillme.mitigation.labels import lint
from stillme.types import Failed

_NOUNS: Mapping[str, str] = {
    "skin_tone": "skin tone",
    "face_shape": "face shape",
    "distinctive_features": "distinctive features",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturePrompt:
    """The sentence that asks an editor to keep a person as they look."""

    sentence: str
    dimensions: Mapping[str, str]
    """What the sentence rests on, by the names of `DIMENSIONS`."""
    by: Mapping[str, Features]
    """What each extractor said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoFeaturePrompt:
    """There is none for this portrait, and none is made up."""

    reason: str
    retryable: bool = False
    """Whether another run may find one."""


def merge(said: Sequence[tuple[str, Extraction]]) -> FeaturePrompt | NoFeaturePrompt:
    """One prompt from one or several extractors, by name.

    The first extractor's sentence leads; dimensions that it left out are added from the next that has them. Every
    extractor must have answered: otherwise some portraits would be described by two and others by one.
    """
    described: dict[str, Features] = {}
    lacking: list[NoFeaturePrompt] = []
    for name, extraction in said:
        match extraction:
            case Described(features=features):
                described[name] = features
            case Declined(reason=reason):
                lacking.append(NoFeaturePrompt(reason=f"{name} declined: {reason}"))
            case Unusable(problem=problem):
                lacking.append(NoFeaturePrompt(reason=f"{name} gave no usable answer: {problem}"))
            case Failed(error=error, retryable=retryable):
                lacking.append(NoFeaturePrompt(reason=f"{name} failed: {error}", retryable=retryable))
            case never:
                assert_never(never)
    if lacking or not described:
        reason = "; ".join(each.reason for each in lacking) or "no extractor was asked"
        return NoFeaturePrompt(reason=reason, retryable=bool(lacking) and all(each.retryable for each in lacking))
    return _merged(described)


def _merged(described: Mapping[str, Features]) -> FeaturePrompt | NoFeaturePrompt:
    first, *others = described.values()
    dimensions = dict(first.dimensions)
    for other in others:
        dimensions |= {name: text for name, text in other.dimensions.items() if name not in dimensions}
    added = {name: dimensions[name] for name in DIMENSIONS if name in dimensions and name not in first.dimensions}
    sentence = first.sentence
    if added:
        also = listed([f"{_NOUNS.get(name, name)} ({text.rstrip('.')})" for name, text in added.items()])
        sentence = f"{sentence} Also maintain the {also}."
    if labels := lint(sentence):
        # Each part passed alone; together they may say more, as a colour before a person does.
        return NoFeaturePrompt(reason=f"the merged sentence has labels: {'; '.join(map(str, labels))}")
    ordered = {name: dimensions[name] for name in DIMENSIONS if name in dimensions}
    return FeaturePrompt(sentence=sentence, dimensions=ordered, by=described)
