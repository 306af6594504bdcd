"""What is known of hosted models, read from catalogue.toml: defaults, limits, prices."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib import resources

from pydantic import Field

from stillme.protocols import Parameters


class Price(Parameters):
    """What a model costs, in US dollars. What is not charged for is 0."""

    input_text: float = Field(default=0.0, ge=0)
    """Per million tokens, as all four."""
    input_image: float = Field(default=0.0, ge=0)
    output_text: float = Field(default=0.0, ge=0)
    output_image: float = Field(default=0.0, ge=0)
    image: float = Field(default=0.0, ge=0)
    """Per returned picture."""
    first_megapixel: float = Field(default=0.0, ge=0)
    further_megapixel: float = Field(default=0.0, ge=0)
    """Of all pictures in and out, each rounded up to whole megapixels."""
    second: float = Field(default=0.0, ge=0)
    """Of computing time."""

    @property
    def by_tokens(self) -> bool:
        """Whether the price can only be told from a count of tokens."""
        return any((self.input_text, self.input_image, self.output_text, self.output_image))


class Facts(Parameters):
    """What is known of one model."""

    inputs: int = Field(default=1, ge=1)
    images: str = "image"
    """The fields that take the pictures, separated by commas; `[]` at the end of a name marks a list."""
    rejects: tuple[str, ...] = ()
    """Parameters that this model answers with an error."""
    choices: Mapping[str, tuple[str, ...]] = {}
    """Parameters of which it takes only these values."""
    price: Price | None = None


class Service(Parameters):
    """One provider: its defaults, and the models of which more is known."""

    default: str
    base_url: str
    inputs: int = 1
    images: str = "image"
    models: Mapping[str, Facts] = {}

    def facts(self, model: str) -> Facts:
        """What is known of the model; of one that is not listed, what holds for the service."""
        known = self.models.get(model, Facts())
        inherited = {name: getattr(self, name) for name in ("inputs", "images") if name not in known.model_fields_set}
        return known.model_copy(update=inherited)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one call used up, as far as it is known."""

    input_text: int = 0
    input_image: int = 0
    output_text: int = 0
    output_image: int = 0
    images: int = 0
    sizes: Sequence[tuple[int, int]] = ()
    """Width and height of every picture that went in or came out."""
    seconds: float = 0.0

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.input_text + self.input_image + self.output_text + self.output_image


def dollars(price: Price | None, usage: Usage) -> float | None:
    """What the call cost; None where nobody can say."""
    if price is None or (price.by_tokens and not usage.tokens):
        return None
    megapixels = sum(math.ceil(width * height / 2**20) for width, height in usage.sizes)
    tokens = (
        price.input_text * usage.input_text
        + price.input_image * usage.input_image
        + price.output_text * usage.output_text
        + price.output_image * usage.output_image
    )
    # Nothing came back: a picture that was not made has no pixels to be charged for.
    area = price.first_megapixel + price.further_megapixel * (megapixels - 1) if megapixels and usage.images else 0.0
    return tokens / 1e6 + price.image * usage.images + area + price.second * usage.seconds


@cache
def service(name: str) -> Service:
    """The provider of that name."""
    return Service.model_validate(_file()[name])


def read_on() -> date:
    """When models and prices were looked up."""
    found = _file()["read"]
    assert isinstance(found, date)
    return found


@cache
def _file() -> Mapping[str, object]:
    return tomllib.loads(
        resources.files("stillme.editors.hosted").joinpath("catalogue.toml").read_text(encoding="utf-8")
    )
