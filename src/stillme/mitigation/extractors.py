"""Extractors by name: the offline one, and every model that `stillme.vlm` knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from stillme.errors import StillmeError, UnknownName
from stillme.mitigation import measured
from stillme.mitigation.features import Extractor


def extractor_named(name: str, parameters: Mapping[str, Any] | None = None) -> Extractor:
    """`measured`, or a model such as `gemini-3-flash`; `parameters` are the model's settings, changed."""
    if name == measured.NAME:
        if parameters:
            raise StillmeError(f"The extractor {name!r} has no parameters; remove {next(iter(parameters))!r}.")
        return measured.Measured()
    from stillme.mitigation.asked import Asked
    from stillme.vlm import Model, known_models, model_named

    known = (measured.NAME, *known_models())
    if name not in known:
        raise UnknownName.among("extractor", name, known, f"There are {', '.join(known)}.")
    try:
        return Asked(name, Model(model_named(name, **dict(parameters or {}))))
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise StillmeError(f"The extractor {name!r} cannot be built: {problems}.") from None
