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

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from stillme.mitigation.arms import NEEDS_FEATURES, NOOP_INSTRUCTION, Position, combined, instruction
from stillme.mitigation.extractors import extractor_named
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
from stillme.mitigation.placebo import placebo
from stillme.types import ImageFile

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
    "placebo",
    "require_paired",
]


def feature_prompt(
    image: Path | str | ImageFile, extractors: Sequence[str | Extractor] = ("measured",)
) -> FeaturePrompt | NoFeaturePrompt:
    """Describe the person in an image so that an editor can be asked to keep their appearance.

    `measured` works offline and describes little; a vision-language model such as `gemini-3-flash` answers the paper's
    question. Several extractors are merged. Without a usable description the result is `NoFeaturePrompt`, with the
    reason.
    """
    file = image if isinstance(image, ImageFile) else ImageFile.of(Path(image))
    extractions: list[tuple[str, Extraction]] = []
    for name_or_extractor in extractors:
        extractor = extractor_named(name_or_extractor) if isinstance(name_or_extractor, str) else name_or_extractor
        with closing(extractor):
            extractions.append((extractor.spec.use, extractor.extract(file)))
    return merge(extractions)
