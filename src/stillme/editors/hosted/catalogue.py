"""Facts about hosted models, read from catalogue.toml: defaults, limits, prices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache

from pydantic import Field

from stillme.core.files import packaged_toml
from stillme.core.http.replies import Usage
from stillme.core.protocols import Parameters


class ModelPrice(Parameters):
    """A model's prices in US dollars; 0 for what is not charged."""

    input_text: float = Field(default=0.0, ge=0)
    """Per million tokens, like the next three."""
    input_image: float = Field(default=0.0, ge=0)
    output_text: float = Field(default=0.0, ge=0)
    output_image: float = Field(default=0.0, ge=0)
    image: float = Field(default=0.0, ge=0)
    """Per returned picture."""
    first_megapixel: float = Field(default=0.0, ge=0)
    further_megapixel: float = Field(default=0.0, ge=0)
    """Over all input and output images, each rounded up to whole megapixels."""
    second: float = Field(default=0.0, ge=0)
    """Per second of computing time."""
    usual_seconds: float = Field(default=0.0, ge=0)
    """Computing time of one edit, as a guide; without it the cost of a model charged by time is unknown beforehand."""

    @property
    def by_tokens(self) -> bool:
        """Whether the cost depends on a token count."""
        return any((self.input_text, self.input_image, self.output_text, self.output_image))


class Facts(Parameters):
    """Facts about one model."""

    inputs: int = Field(default=1, ge=1)
    images: str = "image"
    """The request fields that take the images, separated by commas; a trailing `[]` marks a list."""
    rejects: tuple[str, ...] = ()
    """Parameters that this model rejects."""
    choices: Mapping[str, tuple[str, ...]] = {}
    """Parameters with a closed set of values."""
    price: ModelPrice | None = None
    image_tokens: Mapping[str, int] = {}
    """Output tokens of a picture, as a guide: by `quality` for 1024×1024 pixels, or by `image_size`."""
    portrait_tokens: int = 0
    """Input tokens of a one-megapixel portrait, as a guide."""


class Service(Parameters):
    """One provider: its defaults, and facts about some of its models."""

    default: str
    base_url: str
    inputs: int = 1
    images: str = "image"
    models: Mapping[str, Facts] = {}

    def facts(self, model: str) -> Facts:
        """The model's facts; what is not listed has the service's defaults."""
        known = self.models.get(model, Facts())
        inherited = {name: getattr(self, name) for name in ("inputs", "images") if name not in known.model_fields_set}
        return known.model_copy(update=inherited)


def dollars(price: ModelPrice | None, usage: Usage) -> float | None:
    """What the call cost; None if unknown."""
    if price is None or usage.unknown or (price.by_tokens and not usage.tokens):
        return None
    if usage.images and ((price.output_image and not usage.output_image) or (price.second and not usage.seconds)):
        return None  # a picture was made, and what it is charged by was not reported
    megapixels = sum(math.ceil(width * height / 2**20) for width, height in usage.sizes)
    tokens = (
        price.input_text * usage.input_text
        + price.input_image * usage.input_image
        + price.output_text * usage.output_text
        + price.output_image * usage.output_image
    )
    # Without an output image, nothing is charged by area.
    area = price.first_megapixel + price.further_megapixel * (megapixels - 1) if megapixels and usage.images else 0.0
    return tokens / 1e6 + price.image * usage.images + area + price.second * usage.seconds


@cache
def service(name: str) -> Service:
    """The provider of that name; without defaults for one that is not listed, such as a plugin's."""
    return Service.model_validate(_file().get(name, {"default": "", "base_url": ""}))


@cache
def _file() -> Mapping[str, object]:
    return packaged_toml("stillme.editors.hosted", "catalogue.toml")
