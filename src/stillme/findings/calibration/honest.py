"""Edits that are the same for everyone: a judge must say nothing about whom they change.

The colour maths is our own, in linear light and L*, apart from what the instruments use: an error that both shared
would not be seen.
"""

from __future__ import annotations

import io
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter
from pydantic import BaseModel, ConfigDict

from stillme.core import images
from stillme.core.errors import StillmeError
from stillme.core.protocols import Capabilities, Editor, Parameters, spec_of
from stillme.core.types import Edited, EditOutcome, Failed, Portrait, Request
from stillme.editors.regions import regions_of

Picture = NDArray[np.uint8]
Light = NDArray[np.float64]


class Kind(BaseModel):
    """One kind of honest edit."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    amounts: tuple[float, ...] = ()
    silent: tuple[str, ...]
    visible: bool | None = None
    """Whether the edit shows; None where that depends on the picture."""


class HonestKinds(BaseModel):
    """What `honest.toml` holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: str
    kinds: dict[str, Kind]


@cache
def load() -> HonestKinds:
    """The kinds of this version."""
    text = files("stillme.findings.calibration").joinpath("honest.toml").read_text("utf-8")
    return HonestKinds.model_validate(tomllib.loads(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class HonestEdit:
    """One edit, the same for everyone."""

    kind: str
    amount: float | None = None

    @property
    def name(self) -> str:
        """As in `gamma0.9`."""
        return self.kind if self.amount is None else f"{self.kind}{self.amount:g}"

    def __str__(self) -> str:
        return self.name

    def apply(self, portrait: Portrait) -> Picture:
        """The portrait, edited."""
        return OPERATIONS[self.kind](images.read_rgb(portrait.image.path), portrait, self.amount_for(portrait))

    def amount_for(self, portrait: Portrait) -> float:
        """Its own; without one, the kind's amounts in turn over the portraits."""
        amounts = load().kinds[self.kind].amounts
        if self.amount is not None or not amounts:
            return self.amount or 0.0
        return amounts[int(portrait.image.sha256, 16) % len(amounts)]


class HonestEditor(Editor):
    """Makes one honest edit of every portrait."""

    Parameters = Parameters
    capabilities = Capabilities(seed="exact")

    def __init__(self, edit: HonestEdit) -> None:
        self._edit = edit
        self.spec = spec_of("honest", f"{load().version}-{edit.name}", Parameters())

    def edit_one(self, request: Request) -> EditOutcome:
        """Edit a portrait."""
        (portrait,) = request.portraits
        try:
            return Edited(image=_saved(self._edit.apply(portrait)))
        except StillmeError as error:
            return Failed(error=str(error), retryable=False)


def _saved(picture: Picture) -> bytes:
    """As editors return pictures: a fifth of a lossless file, and as good for the eye."""
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "JPEG", quality=95, subsampling=0)
    return buffer.getvalue()


# -- the operations ----------------------------------------------------------------------------------------------------

_CODES = np.arange(256) / 255
_LINEAR: Light = np.where(_CODES <= 0.04045, _CODES / 12.92, ((_CODES + 0.055) / 1.055) ** 2.4)
_LUMINANCE = np.array([0.2126, 0.7152, 0.0722])


def _linear(rgb: Picture) -> Light:
    return _LINEAR[rgb]


def _encoded(linear: Light) -> Picture:
    """8-bit sRGB of linear light; by a table of 4,096 steps of its square root, where the steps are even enough."""
    steps = np.round(np.sqrt(np.clip(linear, 0, 1)) * 4095).astype(np.int64)
    return _codes_of_roots()[steps]


@cache
def _codes_of_roots() -> Picture:
    x = (np.arange(4096) / 4095) ** 2
    return np.round(255 * np.where(x <= 0.0031308, 12.92 * x, 1.055 * x ** (1 / 2.4) - 0.055)).astype(np.uint8)


def _behind(portrait: Portrait, rgb: Picture) -> Light:
    """Where the portrait shows background, from 0 to 1."""
    regions = regions_of(portrait.image)
    if regions is None:
        raise StillmeError(f"No face is found in the portrait {portrait.id!r}; it cannot be edited.")
    return (
        np.asarray(Image.fromarray(regions.background.mask).resize((rgb.shape[1], rgb.shape[0])), dtype=np.float64)
        / 255
    )


def _by_table(rgb: Picture, curve: Callable[[Light], Light]) -> Picture:
    """A tone curve of code values, the same for all channels."""
    table = np.round(255 * np.clip(curve(_CODES), 0, 1)).astype(np.uint8)
    return table[rgb]


def _jpeg(rgb: Picture, _: Portrait, quality: float) -> Picture:
    buffer = io.BytesIO()
    Image.fromarray(rgb).save(buffer, "JPEG", quality=int(quality))
    return np.asarray(Image.open(buffer).convert("RGB"))


def _resize(rgb: Picture, _: Portrait, scale: float) -> Picture:
    picture = Image.fromarray(rgb)
    small = picture.resize((round(picture.width * scale), round(picture.height * scale)), Image.Resampling.LANCZOS)
    return np.asarray(small)


def _zoom(rgb: Picture, _: Portrait, percent: float) -> Picture:
    picture = Image.fromarray(rgb)
    side = (1 - 1 / (1 + percent / 100)) / 2
    box = (side * picture.width, side * picture.height, (1 - side) * picture.width, (1 - side) * picture.height)
    return np.asarray(picture.resize(picture.size, Image.Resampling.BICUBIC, box=box))


def _filtered(rgb: Picture, by: ImageFilter.Filter) -> Picture:
    return np.asarray(Image.fromarray(rgb).filter(by))


def _bar(rgb: Picture, _: Portrait, _amount: float) -> Picture:
    painted = rgb.copy()
    painted[round(0.88 * rgb.shape[0]) :] = (20, 30, 80)
    return painted


def _in_light(rgb: Picture, factors: Sequence[float]) -> Picture:
    """The picture with each channel's light multiplied."""
    return _encoded(_linear(rgb) * np.array(factors))


def _vignette(rgb: Picture, _: Portrait, stops: float) -> Picture:
    """Darker towards the corners, by so many stops there."""
    rows, columns = (np.linspace(-1, 1, side) for side in rgb.shape[:2])
    radius = (rows[:, None] ** 2 + columns[None, :] ** 2) / 2
    return _encoded(_linear(rgb) * (2 ** (-stops * radius))[..., None])


def _background(rgb: Picture, portrait: Portrait, stops: float) -> Picture:
    """Everyone before the same wall, with the person relit by so many stops."""
    mask = _behind(portrait, rgb)[..., None]
    wall = np.linspace(0.34, 0.22, rgb.shape[0])[:, None, None] * np.array([0.82, 1.0, 0.9])
    return _encoded((1 - mask) * _linear(rgb) * 2**stops + mask * wall)


OPERATIONS: Mapping[str, Callable[[Picture, Portrait, float], Picture]] = {
    "mirror": lambda rgb, _, __: np.ascontiguousarray(rgb[:, ::-1]),
    "jpeg": _jpeg,
    "resize": _resize,
    "zoom": _zoom,
    "rotation": lambda rgb, _, degrees: np.asarray(Image.fromarray(rgb).rotate(degrees, Image.Resampling.BICUBIC)),
    "sharpen": lambda rgb, _, __: _filtered(rgb, ImageFilter.UnsharpMask(radius=2, percent=80, threshold=0)),
    "blur": lambda rgb, _, pixels: _filtered(rgb, ImageFilter.GaussianBlur(pixels * max(rgb.shape) / 512)),
    "bar": _bar,
    "grey": lambda rgb, _, __: np.repeat(_encoded(_linear(rgb) @ _LUMINANCE)[..., None], 3, axis=2),
    "sepia": lambda rgb, _, __: _encoded((_linear(rgb) @ _LUMINANCE)[..., None] * np.array([1.12, 0.98, 0.76])),
    "brightness": lambda rgb, _, stops: _encoded(_linear(rgb) * 2**stops),
    "gamma": lambda rgb, _, exponent: _by_table(rgb, lambda code: code**exponent),
    "s_curve": lambda rgb, _, by: _by_table(rgb, lambda code: (1 - by) * code + by * (3 * code**2 - 2 * code**3)),
    "contrast": lambda rgb, _, factor: _by_table(rgb, lambda code: 0.5 + factor * (code - 0.5)),
    "warm": lambda rgb, _, by: _in_light(rgb, (1 + by, 1.0, 1 - by)),
    "cool": lambda rgb, _, by: _in_light(rgb, (1 - by, 1.0, 1 + by)),
    "vignette": _vignette,
    "background": _background,
    "relit_background": _background,
}
