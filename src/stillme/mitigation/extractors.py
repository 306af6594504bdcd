"""Extractors by name: the offline one, and every model that `stillme.judges.vlm` knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from stillme.core.errors import InvalidParameters, StillmeError, UnknownName
from stillme.core.types import ImageFile
from stillme.mitigation import measured
from stillme.mitigation.features import Extraction, Extractor, FeaturePrompt, NoFeaturePrompt, merge


def extractor_named(name: str, parameters: Mapping[str, Any] | None = None) -> Extractor:
    """`measured`, or a model such as `gemini-3-flash`; `parameters` override the model's settings."""
    if name == measured.NAME:
        if parameters:
            raise StillmeError(f"The extractor {name!r} has no parameters; remove {next(iter(parameters))!r}.")
        return measured.MeasuredExtractor()
    from stillme.judges.vlm import Model, ModelSettings, known_models, model_named
    from stillme.mitigation.model_extractor import ModelExtractor

    known = (measured.NAME, *known_models())
    if name not in known:
        raise UnknownName.among("extractor", name, known, f"Known extractors: {', '.join(known)}.")
    given = dict(parameters or {})
    try:
        return ModelExtractor(name, Model(model_named(name, **given)))
    except ValidationError as error:
        raise InvalidParameters(f"The extractor {name!r}", error, ModelSettings, given) from None


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
