"""Mitigate identity changes through the prompt: the feature prompt, its placebo, and the linter for both.

    match feature_prompt("anna.jpg"):
        case FeaturePrompt(sentence=sentence):
            instruction = combined("Dress the person as a doctor.", sentence)
        case NoFeaturePrompt(reason=reason):
            ...

A feature prompt describes what can be seen in a portrait (the paper's Appendix F) and asks the editor to keep it. It
names no demographic group: `lint` finds such words, and an answer that keeps using them is rejected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stillme.core.deferred import deferred

if TYPE_CHECKING:
    from stillme.mitigation.arms import NEEDS_FEATURES, NOOP_INSTRUCTION, Position, combined, instruction
    from stillme.mitigation.extractors import extractor_named, feature_prompt
    from stillme.mitigation.features import (
        DIMENSIONS,
        Declined,
        Described,
        Extraction,
        Extractor,
        Features,
        Unusable,
        extraction_key,
    )
    from stillme.mitigation.labels import Label, lint
    from stillme.mitigation.merging import FeaturePrompt, NoFeaturePrompt, merge
    from stillme.mitigation.pairing import NotPaired, differences, require_paired

__all__ = [
    "DIMENSIONS",
    "NEEDS_FEATURES",
    "NOOP_INSTRUCTION",
    "Declined",
    "Described",
    "Extraction",
    "Extractor",
    "FeaturePrompt",
    "Features",
    "Label",
    "NoFeaturePrompt",
    "NotPaired",
    "Position",
    "Unusable",
    "combined",
    "differences",
    "extraction_key",
    "extractor_named",
    "feature_prompt",
    "instruction",
    "lint",
    "merge",
    "require_paired",
]

__getattr__ = deferred(
    __name__,
    arms=("NEEDS_FEATURES", "NOOP_INSTRUCTION", "Position", "combined", "instruction"),
    extractors=("extractor_named", "feature_prompt"),
    features=(
        "DIMENSIONS",
        "Declined",
        "Described",
        "Extraction",
        "Extractor",
        "Features",
        "Unusable",
        "extraction_key",
    ),
    labels=("Label", "lint"),
    merging=("FeaturePrompt", "NoFeaturePrompt", "merge"),
    pairing=("NotPaired", "differences", "require_paired"),
)
