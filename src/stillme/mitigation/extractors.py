"""Extractors by name: the offline one, and every model that `stillme.vlm` knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from stillme.errors import InvalidParameters, StillmeError, UnknownName
from stillme.mitigation import measured
from stillme.mitigation.features import Extractor


def extractor_named(name: str, parameters: Mapping[str, Any] | None = None) -> Extractor:
    """`measured`, or a model such as `gemini-3-flash`; `parameters` override the model's settings."""
    if name == measured.NAME:
        if parameters:
            raise StillmeError(f"The extractor {name!r} has no parameters; remove {next(iter(parameters))!r}.")
        return measured.MeasuredExtractor()
    from stillme.mitigation.model_extractor import ModelExtractor
    from stillme.vlm import Model, ModelSettings, known_models, model_named

    known = (measured.NAME, *known_models())
    if name not in known:
        raise UnknownName.among("extractor", name, known, f"Known extractors: {', '.join(known)}.")
    given = dict(parameters or {})
    try:
        return ModelExtractor(name, Model(model_named(name, **given)))
    except ValidationError as error:
        raise InvalidParameters(f"The extractor {name!r}", error, ModelSettings, given) from None
