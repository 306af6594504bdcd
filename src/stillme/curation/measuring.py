"""Measure what a curator looks for: pose, focus, light, what is visible, expression.

Nothing here knows how light or dark a person's skin is: light is compared between two sides of one face, in stops,
and exposure is the share of pixels that are clipped. A threshold on brightness would reject dark skin.

Method, all from the 468-point mesh (its depth included) on the picture's most prominent face:
- yaw, pitch, roll: the angles of the line between the outer corners of the eyes and of the line from forehead to chin;
  pitch is counted from that of frontal faces, whose chin lies nearer to the viewer than their forehead;
- mouth and eyes: the gap between lips or lids over the width of mouth or eye; the lift of the mouth's corners over its
  width;
- covered: colours on the skin that are not this face's own, and eyes far darker than its skin; both are proxies.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import TypeAdapter

from stillme.core.colour import Floats, linear_to_lab, to_linear
from stillme.core.errors import StillmeError, UnreadableImage
from stillme.core.files import packaged_toml
from stillme.core.images import read_rgb
from stillme.curation.pools import Pools
from stillme.instruments import faces
from stillme.instruments.faces.landmarks import CHIN, FOREHEAD, LEFT_EYE, OVAL, RIGHT_EYE
from stillme.instruments.faces.raster import Mask, Picture, fit, grow, hull, polygon
from stillme.instruments.identity import embed
from stillme.instruments.quality import read_quality
from stillme.instruments.scene import WORKING
from stillme.instruments.skin import ita

NEUTRAL_PITCH = 10.5
"""Degrees: the mean of the embedded frontal renders, whose camera stands at the height of the eyes."""
_LUMINANCE = np.array([0.2126729, 0.7151522, 0.0721750], dtype=np.float32)
_ODD_HUE = 0.06
"""Difference of a channel's share of the light from which a colour is not this skin's."""
_BLANK = 3
_ODD_DARK = 3.0
"""Stops below the skin's median from which a pixel is hair or something in front of the face."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredPicture:
    """What the instruments measured on one picture."""

    values: Mapping[str, float]
    """By the names of `criteria.toml`, and those that the dataset card shows; empty where no face was found."""
    embedding: Floats | None
    """The face in 128 numbers; None where there is no face."""
    hash: int
    """64 bits of the whole picture's coarse shape."""


def measure(rgb: Picture) -> MeasuredPicture:
    """Measure one picture."""
    scale = max(rgb.shape[:2]) / min(WORKING, max(rgb.shape[:2]))
    small = fit(rgb, WORKING)
    detected = faces.find(small)
    shape = picture_hash(small)
    if not detected:
        return MeasuredPicture(values={"faces": 0.0}, embedding=None, hash=shape)
    face = detected[0]
    mesh = faces.mesh(small, face)
    quality = read_quality(small, mesh)
    rivals = [faces.prominence(other, small.shape) for other in detected[1:2]]
    values = {
        "faces": float(len(detected)),
        "rival": rivals[0] / faces.prominence(face, small.shape) if rivals else 0.0,
        "face_side": face.size * scale,
        "face_share": face.size**2 / (small.shape[0] * small.shape[1]),
        "presence": mesh.presence,
        "cut_off": _cut_off(mesh, small),
        "yaw": quality.yaw,
        "pitch": quality.pitch - NEUTRAL_PITCH,
        "roll": quality.roll,
        "sharpness": quality.sharpness,
        "overexposed": quality.overexposed,
        "underexposed": quality.underexposed,
        **_mouth_and_eyes(mesh),
        **_light(small, mesh),
    }
    rounded = {name: round(value, 4) for name, value in values.items()}
    return MeasuredPicture(values=rounded, embedding=embed(small, mesh), hash=shape)


def picture_hash(rgb: Picture) -> int:
    """Whether each of 8 × 8 spots is brighter than the one to its right, as 64 bits: similar for similar pictures."""
    import cv2

    grey = cv2.resize(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), (9, 8), interpolation=cv2.INTER_AREA)
    bits = (grey[:, :-1] > grey[:, 1:]).ravel()
    return int("".join("1" if bit else "0" for bit in bits), 2)


def _cut_off(mesh: faces.Mesh, rgb: Picture) -> float:
    """The share of the face's outline that lies outside the picture."""
    outline = mesh.points[list(OVAL)]
    height, width = rgb.shape[:2]
    outside = (outline[:, 0] < 0) | (outline[:, 1] < 0) | (outline[:, 0] >= width) | (outline[:, 1] >= height)
    return float(outside.mean())


def _mouth_and_eyes(mesh: faces.Mesh) -> dict[str, float]:
    points = mesh.points.astype(np.float64)

    def gap(a: int, b: int) -> float:
        return float(np.linalg.norm(points[a] - points[b]))

    width = max(gap(61, 291), 1e-6)
    down = points[CHIN] - points[FOREHEAD]
    down = down / max(float(np.linalg.norm(down)), 1e-6)
    lift = (points[[13, 14]].mean(axis=0) - points[[61, 291]].mean(axis=0)) @ down
    eyes = gap(386, 374) / max(gap(263, 362), 1e-6), gap(159, 145) / max(gap(33, 133), 1e-6)
    return {
        "mouth_open": gap(13, 14) / width,
        "smile": float(lift) / width,
        "eyes_open": min(eyes),
    }


def _light(rgb: Picture, mesh: faces.Mesh) -> dict[str, float]:
    skin = faces.skin_mask(mesh, rgb.shape)
    pixels = to_linear(rgb[skin])
    if len(pixels) < 200:
        return {}
    light = pixels @ _LUMINANCE
    typical = np.median(pixels, axis=0)
    brightness = max(float(np.median(light)), 1e-6)
    lab = linear_to_lab(typical.astype(np.float32))
    background = _background(rgb, mesh)
    values = {
        "skin_l": float(lab[0]),
        "skin_ita": ita(lab),
        "side_light": _side_light(rgb, mesh, skin),
        "odd_skin": _odd(pixels, typical, brightness),
        "eyes_dark": _stops(rgb, _eyes(mesh, rgb), brightness),
    }
    if background is not None:
        values["background_l"] = background
    return values


def _side_light(rgb: Picture, mesh: faces.Mesh, skin: Mask) -> float:
    """How much brighter the skin on one side of the nose is than on the other, in stops."""
    top, down = mesh.points[FOREHEAD], mesh.points[CHIN] - mesh.points[FOREHEAD]
    rows, columns = np.nonzero(skin)
    side = (columns - top[0]) * down[1] - (rows - top[1]) * down[0]
    light = to_linear(rgb[skin]) @ _LUMINANCE
    left, right = light[side > 0], light[side < 0]
    if min(len(left), len(right)) < 50:
        return 0.0
    return abs(float(np.log2(max(np.median(left), 1e-6) / max(np.median(right), 1e-6))))


def _odd(pixels: Floats, typical: Floats, brightness: float) -> float:
    """The share of the skin's area that shows something else: hair, hands, spectacles, a microphone."""
    share = pixels / np.maximum(pixels.sum(axis=1, keepdims=True), 1e-6)
    own = typical / max(float(typical.sum()), 1e-6)
    odd = np.abs(share - own).max(axis=1) > _ODD_HUE
    dark = pixels @ _LUMINANCE < brightness / 2**_ODD_DARK
    return float((odd | dark).mean())


def _eyes(mesh: faces.Mesh, rgb: Picture) -> Mask:
    both = polygon(hull(mesh.points[list(LEFT_EYE)]), rgb.shape) | polygon(
        hull(mesh.points[list(RIGHT_EYE)]), rgb.shape
    )
    return grow(both, 0.10 * mesh.eye_distance)


def _stops(rgb: Picture, where: Mask, brightness: float) -> float:
    if not where.any():
        return 0.0
    return float(np.log2(brightness / max(float(np.median(to_linear(rgb[where]) @ _LUMINANCE)), 1e-6)))


def _background(rgb: Picture, mesh: faces.Mesh) -> float | None:
    """Lightness of what is not the person; None where there is too little of it."""
    outside = (faces.person_mask(rgb) < 0.1) & ~faces.face_oval(mesh, rgb.shape)
    # Pictures that were rotated upright have black corners, which are not background.
    outside &= rgb.max(axis=2) > _BLANK
    if outside.mean() < 0.03:
        return None
    return float(linear_to_lab(np.median(to_linear(rgb[outside]), axis=0).astype(np.float32))[0])


State = Literal["fine", "doubt", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CriterionMeasure:
    """One number that bears on a criterion."""

    key: str
    title: str
    unit: str
    least: float = -math.inf
    most: float = math.inf

    def shown(self, value: float) -> float:
        """The value in the unit that people read; shares are measured as parts of 1."""
        return 100 * value if self.unit == "%" else value

    def text(self, value: float) -> str:
        """`turned sideways 12°`."""
        shown = self.shown(value)
        number = f"{shown:.1f}" if abs(shown) < 10 and self.unit not in ("°", "%", "px", "") else f"{shown:.0f}"
        number = "0" if number == "-0" else number.replace("-", "−")
        gap = "" if self.unit in ("°", "") else " "
        return f"{self.title} {number}{gap}{self.unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One requirement of a portrait."""

    key: str
    title: str
    text: str
    """The paper's own words."""
    measures: tuple[CriterionMeasure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a candidate may be rejected beside the criteria."""

    key: str
    title: str


@dataclass(frozen=True, kw_only=True)
class Criteria:
    """All of `criteria.toml`."""

    version: str
    criteria: tuple[Criterion, ...]
    reasons: tuple[Reason, ...]
    duplicates: Mapping[Literal["picture", "person"], float]
    """How far apart two of one picture, in bits, or of one person may be."""

    @cached_property
    def rejections(self) -> Mapping[str, str]:
        """Why a candidate may be rejected: key → words, one per criterion first."""
        own = {criterion.key: f"Not: {criterion.title.lower()}" for criterion in self.criteria}
        return own | {reason.key: reason.title for reason in self.reasons}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """What the instruments say of one candidate on one criterion."""

    criterion: Criterion
    state: State
    readings: tuple[tuple[str, bool], ...]
    """Each number in words, and whether it is within its limits."""

    @property
    def text(self) -> str:
        """The doubts, or all numbers where there are none."""
        doubts = [words for words, fine in self.readings if not fine]
        return "; ".join(doubts or [words for words, _ in self.readings]) or "not measured"


@cache
def load_criteria() -> Criteria:
    """Read the criteria that ship with this version."""
    return TypeAdapter(Criteria).validate_python(packaged_toml("stillme.curation", "criteria.toml"))


def hints(values: Mapping[str, float]) -> tuple[Hint, ...]:
    """What these measurements say of each criterion. Without a face only its absence is reported."""
    return tuple(_hint(criterion, values) for criterion in load_criteria().criteria)


def _hint(criterion: Criterion, values: Mapping[str, float]) -> Hint:
    readings = tuple(
        (measure.text(values[measure.key]), measure.least <= measure.shown(values[measure.key]) <= measure.most)
        for measure in criterion.measures
        if measure.key in values
    )
    state: State = "unknown" if not readings else "fine" if all(fine for _, fine in readings) else "doubt"
    return Hint(criterion=criterion, state=state, readings=readings)


_MIN_PRESENCE = 0.9
"""The mesh's presence below which a face is too hidden to be compared with others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarPair:
    """Two pictures, by their ids."""

    first: str
    second: str
    kind: Literal["picture", "person"]
    distance: float
    """Bits of 64 for a picture, distance of embeddings for a person."""

    @property
    def words(self) -> str:
        """What they seem to show, as text."""
        return "one picture" if self.kind == "picture" else "perhaps one person"


def find_similar(measured: Mapping[str, MeasuredPicture]) -> tuple[SimilarPair, ...]:
    """Pairs that show one picture (by its coarse shape) or perhaps one person (by the face's embedding)."""
    return tuple(sorted(_pairs(measured), key=lambda pair: (pair.kind, pair.distance, pair.first)))


def _pairs(measured: Mapping[str, MeasuredPicture]) -> Iterator[SimilarPair]:
    limits = load_criteria().duplicates
    ids = list(measured)
    if len(ids) < 2:
        return
    hashes = np.array([picture.hash for picture in measured.values()], dtype=np.uint64)
    faces = np.stack([_face(picture) for picture in measured.values()])
    for index, first in enumerate(ids[:-1]):
        bits = np.bitwise_count(hashes[index + 1 :] ^ hashes[index])
        apart = ((faces[index + 1 :] - faces[index]) ** 2).sum(axis=1) / 2
        person = apart <= limits["person"]
        # Portraits with the same framing share a coarse shape; where both show a face, it must be the same one too.
        picture = (bits <= limits["picture"]) & (person | np.isnan(apart))
        for place in np.flatnonzero(picture | person):
            same = bool(picture[place])
            yield SimilarPair(
                first=first,
                second=ids[index + 1 + int(place)],
                kind="picture" if same else "person",
                distance=float(bits[place]) if same else round(float(apart[place]), 3),
            )


def _face(measured: MeasuredPicture) -> Floats:
    """The embedding; NaN, which is near nothing, where no face is certain."""
    if measured.embedding is None or measured.values.get("presence", 0.0) < _MIN_PRESENCE:
        return np.full(128, np.nan, dtype=np.float32)
    return measured.embedding


CHECKS = "checks.jsonl"
_METHOD = "2"
"""Changes with `measuring.py`; measurements of another method are repeated."""


def check_missing(pools: Pools, *, watch: Callable[[int, int], None] | None = None) -> Mapping[str, MeasuredPicture]:
    """Measure the candidates that have no measurements yet; each is kept as soon as it is measured."""
    known = read_checks(pools.folder)
    missing = {candidate.sha256: candidate for candidate in pools.candidates if candidate.sha256 not in known}
    checks = dict(known)
    if missing:
        with (
            (pools.folder / CHECKS).open("a", encoding="utf-8") as stream,
            ThreadPoolExecutor(min(os.cpu_count() or 1, 8)) as workers,
        ):
            # A line that a crash truncated must not swallow the next one.
            stream.write("\n" if stream.tell() else "")
            waiting = [workers.submit(_measure, name, pools.path_of(candidate)) for name, candidate in missing.items()]
            for done, future in enumerate(as_completed(waiting), start=1):
                sha256, measured = future.result()
                stream.write(_line(sha256, measured) + "\n")
                stream.flush()
                checks[sha256] = measured
                if watch:
                    watch(done, len(missing))
    return checks


def read_checks(folder: Path) -> dict[str, MeasuredPicture]:
    """The stored measurements by the picture's SHA-256; unreadable lines are ignored, so measured again."""
    checks: dict[str, MeasuredPicture] = {}
    try:
        lines = (folder / CHECKS).read_text("utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return checks
    for line in lines:
        try:
            row: dict[str, Any] = json.loads(line)
            if row["method"] == _METHOD:
                embedding = row["embedding"]
                checks[row["sha256"]] = MeasuredPicture(
                    values=row["values"],
                    embedding=None if embedding is None else np.array(embedding, dtype=np.float32),
                    hash=int(row["hash"], 16),
                )
        except (ValueError, KeyError, TypeError):
            continue
    return checks


def _measure(sha256: str, picture: Path) -> tuple[str, MeasuredPicture]:
    try:
        return sha256, measure(read_rgb(picture))
    except UnreadableImage as error:
        raise StillmeError(f"A candidate's picture is missing or damaged: {error} Draw the pools again.") from None


def _line(sha256: str, measured: MeasuredPicture) -> str:
    embedding = None if measured.embedding is None else [round(float(number), 5) for number in measured.embedding]
    row = {
        "sha256": sha256,
        "method": _METHOD,
        "values": dict(measured.values),
        "hash": f"{measured.hash:016x}",
        "embedding": embedding,
    }
    return json.dumps(row, separators=(",", ":"))
