"""Merge the extractors' descriptions into one feature prompt, or say why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from stillme.core.types import Failed
from stillme.mitigation.features import DIMENSIONS, Declined, Described, Extraction, Features, Unusable, listed
from stillme.mitigation.labels import lint

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
