"""Extractors by name, and the offline one: it describes only what can be measured in the image, and no more.

A face that looks away is not described. Skin and hair are described as they appear in this image, and only where the
light can be trusted: even, and bright enough for the whites of the eyes to be white. Otherwise a dim image would make
everyone look dark. Shape is measured on the face mesh. Eye colour, lips, hair texture, wrinkles, marks and glasses
cannot be measured well enough, and hair cannot be distinguished from a head covering.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from stillme.core import images
from stillme.core.colour import Floats, delta_e, linear_to_lab, to_linear
from stillme.core.errors import InvalidParameters, StillmeError, UnknownName, UnreadableImage
from stillme.core.files import packaged_toml
from stillme.core.types import Failed, ImageFile, Json, Spec
from stillme.instruments import faces
from stillme.instruments.faces.landmarks import CHIN, FOREHEAD, LEFT_EYE, RIGHT_EYE
from stillme.instruments.faces.raster import Mask, Picture, fit, polygon
from stillme.mitigation import measured
from stillme.mitigation.features import (
    OPENING,
    Declined,
    Described,
    Extraction,
    Extractor,
    FeaturePrompt,
    Features,
    NoFeaturePrompt,
    listed,
    merge,
)

NAME = "measured"

_LONGEST = 1024
_LUMINANCE = np.array([0.2126729, 0.7151522, 0.0721750], dtype=np.float32)

# Point numbers of MediaPipe's canonical face mesh.
_SIDES = (234, 454)
_NOSE_TIP = 1
_NOSE_WINGS = (129, 358)
_EYE_CORNERS = (33, 263)


class MeasuredExtractor(Extractor):
    """Describes skin tone, face shape, nose and hair as measured offline; needs no key."""

    concurrency = 2

    def __init__(self) -> None:
        self.spec = Spec(use=NAME, version=str(_limits()["version"]), parameters={})

    def extract(self, image: ImageFile) -> Extraction:
        """Measure one image. Without exactly one frontal face it is `Declined`, with the reason."""
        try:
            rgb = fit(images.read_rgb(image.path), _LONGEST)
        except UnreadableImage as error:
            return Failed(error=str(error), retryable=False)
        detections = faces.find(rgb)
        limits = _limits()["face"]
        if not detections:
            return Declined(reason="no face found")
        main, *others = detections
        if main.size < limits["smallest"]:
            return Declined(reason=f"face too small: {main.size:.0f} of at least {limits['smallest']} pixels")
        if others and faces.prominence(others[0], rgb.shape) / faces.prominence(main, rgb.shape) >= limits["rival"]:
            return Declined(reason="several faces, none clearly the main one")
        face = _Face(rgb=rgb, mesh=faces.mesh(rgb, main))
        if face.turned > limits["turned"]:
            return Declined(reason="the face is turned away", effective={"measured": {"turned": round(face.turned, 3)}})
        return _described(face)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Face:
    rgb: Picture
    mesh: faces.Mesh

    def distance(self, points: tuple[int, int]) -> float:
        return max(float(np.linalg.norm(self.mesh.points[points[0]] - self.mesh.points[points[1]])), 1e-6)

    @cached_property
    def skin(self) -> Floats:
        """CIELAB of the skin's pixels, without the darkest and brightest."""
        limits = _limits()["skin"]
        linear = to_linear(self.rgb[faces.skin_mask(self.mesh, self.rgb.shape)])
        order = np.argsort(linear @ _LUMINANCE, kind="stable")
        return linear_to_lab(linear[order[int(limits["low"] * len(order)) : int(limits["high"] * len(order))]])

    @cached_property
    def eye_white(self) -> Floats | None:
        """CIELAB of the brightest part of the eyes: how white appears in this light."""
        limits = _limits()["light"]
        eyes = sum(polygon(self.mesh.points[list(eye)], self.rgb.shape).astype(int) for eye in (LEFT_EYE, RIGHT_EYE))
        pixels = linear_to_lab(to_linear(self.rgb[np.asarray(eyes) > 0]))
        if len(pixels) < limits["least_eye_pixels"]:
            return None
        bright = pixels[pixels[:, 0] >= np.quantile(pixels[:, 0], limits["eye_white"])]
        return np.median(bright, axis=0).astype(np.float32)

    @property
    def well_lit(self) -> bool:
        limits, white = _limits()["light"], self.eye_white
        enough = len(self.skin) >= _limits()["skin"]["least_pixels"]
        if white is None or not enough or white[0] < limits["least_white"] or _chroma(white) > limits["most_cast"]:
            return False
        return float(self.skin[:, 0].max() - self.skin[:, 0].min()) <= limits["most_spread"]

    @property
    def turned(self) -> float:
        left, right = (self.distance((_NOSE_TIP, side)) for side in _SIDES)
        return abs(left - right) / (left + right)


def _described(face: _Face) -> Described:
    numbers: dict[str, Json] = {"turned": round(face.turned, 3), "well_lit": face.well_lit}
    if face.eye_white is not None:
        numbers["eye_white_lab"] = _rounded(face.eye_white)
    skin, hair = (_skin_words(face, numbers), _hair_words(face, numbers)) if face.well_lit else ("", "")
    words = {"skin_tone": skin, **_shape(face, numbers), "hair": hair}
    words = {name: text for name, text in words.items() if text}
    features = Features(dimensions=words, sentence=f"{OPENING} {listed(words.values())}.")
    return Described(features=features, effective={"measured": numbers})


def _shape(face: _Face, numbers: dict[str, Json]) -> dict[str, str]:
    shape = face.distance((FOREHEAD, CHIN)) / face.distance(_SIDES)
    nose = face.distance(_NOSE_WINGS) / face.distance(_EYE_CORNERS)
    numbers |= {"shape": round(shape, 3), "nose": round(nose, 3)}
    return {"face_shape": _sure_word(shape, _limits()["shape"]), "nose": _sure_word(nose, _limits()["nose"])}


def _sure_word(value: float, table: Mapping[str, Any]) -> str:
    """The first or last word only if noise cannot have carried the value across its cut-point."""
    (low, high), noise = table["cuts"], table["noise"]
    words: Sequence[str] = table["words"]
    return words[0] if value < low - noise else words[2] if value > high + noise else words[1]


def _skin_words(face: _Face, numbers: dict[str, Json]) -> str:
    lab = np.median(face.skin, axis=0).astype(np.float32)
    numbers["skin_lab"] = _rounded(lab)
    table, undertone = _limits()["skin"], _limits()["undertone"]
    if _chroma(lab) < table["least_chroma"]:
        return ""
    tone = table["words"][bisect_right(table["cuts"], float(lab[0]))]
    if _chroma(lab) >= undertone["least_chroma"]:
        for name in ("rosy", "golden"):
            low, high = undertone[name]
            if low <= _hue(lab) <= high:
                return f"{tone} skin with {name} undertones"
    return f"{tone} skin"


def _hair_words(face: _Face, numbers: dict[str, Json]) -> str:
    limits = _limits()["hair"]
    visible = _above_forehead(face, limits) & (faces.person_mask(face.rgb) > limits["person"])
    area = face.distance(_SIDES) * face.distance((FOREHEAD, CHIN))
    whole = 2 * limits["half_width"] * (limits["top"] - limits["bottom"]) * area
    # Parts of the band outside the image count as not visible.
    if visible.sum() < limits["least_share"] * whole:
        return ""
    lab = linear_to_lab(to_linear(face.rgb[visible]))
    middle = np.median(lab, axis=0).astype(np.float32)
    numbers["hair_lab"] = _rounded(middle)
    one_colour = float(np.median(np.abs(lab[:, 0] - middle[0]))) <= limits["most_spread"]
    bald = float(delta_e(middle, np.median(face.skin, axis=0).astype(np.float32))) < limits["bald"]
    word = _hair_colour(middle) if one_colour and not bald else ""
    return f"{word} hair or head covering" if word else ""


def _above_forehead(face: _Face, limits: Mapping[str, Any]) -> Mask:
    points = face.mesh.points
    up = points[FOREHEAD] - points[CHIN]
    height = max(float(np.linalg.norm(up)), 1e-6)
    up = up / height
    rows, columns = np.mgrid[: face.rgb.shape[0], : face.rgb.shape[1]]
    right, down = columns - points[FOREHEAD, 0], rows - points[FOREHEAD, 1]
    above: NDArray[np.float64] = (right * up[0] + down * up[1]) / height
    aside: NDArray[np.float64] = (down * up[0] - right * up[1]) / face.distance(_SIDES)
    return (above > limits["bottom"]) & (above < limits["top"]) & (np.abs(aside) < limits["half_width"])


def _hair_colour(lab: Floats) -> str:
    """A natural hair colour; empty for any other."""
    limits = _limits()["hair"]
    lightness, chroma, hue = float(lab[0]), _chroma(lab), _hue(lab)
    if chroma < max(limits["grey_chroma"], limits["grey_share"] * lightness):
        return limits["grey_words"][bisect_right(limits["grey_cuts"], lightness)]
    if lightness < limits["black"]:
        return "black"
    low, high = limits["hues"]
    if not low <= hue <= high:
        return ""
    if hue >= limits["blond_hue"] and chroma >= limits["blond_chroma"] and lightness >= limits["blond"]:
        return "blond" if lightness >= limits["dark_blond"] else "dark blond"
    word: str = limits["words"][bisect_right(limits["cuts"], lightness)]
    return f"reddish {word}" if hue < limits["red_hue"] and chroma > limits["red_chroma"] else word


def _chroma(lab: Floats) -> float:
    return float(np.hypot(lab[1], lab[2]))


def _hue(lab: Floats) -> float:
    return float(np.degrees(np.arctan2(lab[2], lab[1])))


def _rounded(lab: Floats) -> list[float]:
    return [round(float(value), 1) for value in lab]


@cache
def _limits() -> Mapping[str, Any]:
    return packaged_toml("stillme.mitigation", "measured.toml")


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
