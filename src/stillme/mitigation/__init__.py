"""Keep people themselves by words alone: the feature prompt, its placebo, and the linter that guards both.

    match feature_prompt("anna.jpg"):
        case FeaturePrompt(sentence=sentence):
            instruction = combined("Dress the person as a doctor.", sentence)
        case NoFeaturePrompt(reason=reason):
            ...

A feature prompt describes what can be seen in a portrait (the paper's Appendix F) and asks the editor to keep it. It
names no demographic group: `lint` finds such words, and an extractor that insists on them is not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stillme.mitigation.arms import NEEDS_FEATURES, NOTHING, Position, combined, instruction
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
    "NOTHING",
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
    """Describe the person in a picture so that an editor can be asked to keep them.

    `measured` works offline and says little; a vision-language model such as `gemini-3-flash` answers the paper's
    question. Several are merged. No feature prompt is ever made up: the reason stands in `NoFeaturePrompt`.
    """
    file = image if isinstance(image, ImageFile) else ImageFile.of(Path(image))
    said: list[tuple[str, Extraction]] = []
    for each in extractors:
        extractor = extractor_named(each) if isinstance(each, str) else each
        try:
            said.append((extractor.spec.use, extractor.extract(file)))
        finally:
            extractor.close()
    return merge(said)
