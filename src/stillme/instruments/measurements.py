"""Measure one pair: every instrument's number, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stillme.core.errors import UnreadableImage
from stillme.core.images import read_rgb
from stillme.core.types import Abstained, Json
from stillme.instruments import faces
from stillme.instruments.alignment import Drawing, Placement, draw, place
from stillme.instruments.cards import CHANGED, DESCRIBED, NOT_VISIBLE, REGIONS, SKIN, VISIBLE
from stillme.instruments.change import VisibleChange, compare, signs_of_change
from stillme.instruments.domain import withhold
from stillme.instruments.faces.memory import describe, drawn
from stillme.instruments.faces.raster import Picture
from stillme.instruments.heads import Reading, heads
from stillme.instruments.identity import FaceDescription, cut_for, distance, in_words
from stillme.instruments.light import Light, Witnesses, compare_light, find_witnesses
from stillme.instruments.quality import Quality, read_quality
from stillme.instruments.scene import Parts, Person, Scene, View, look, parts, shrink, view
from stillme.instruments.skin import Skin, SkinChange, compare_skin, read_skin
from stillme.instruments.thresholds import load_thresholds

Image = Picture | bytes | Path
"""Pixels (8-bit RGB), an encoded file, or the path of one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FaceReading:
    """What networks see in one face, and what the heads read from that."""

    description: FaceDescription
    reading: Reading


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SourceReadings:
    """Everything about a portrait that does not depend on its edits: computed once, used for all of them."""

    scene: Scene
    view: View
    parts: Parts
    drawing: Drawing
    skin: Skin | Abstained
    witnesses: Witnesses | Abstained
    """Of the light on the skin."""
    reading: FaceReading | Abstained
    quality: Quality | None
    drawn: float
    """How much its face looks drawn, above 0; 0 without a face."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measurements:
    """What the instruments measured, each quantity in its own unit."""

    values: Mapping[str, float]
    """By the axis names of the rubric; absent where abstained."""
    abstained: Mapping[str, str]
    """Why the others are absent."""
    light: Light
    skin: SkinChange | Abstained
    change: VisibleChange | None
    source: SourceReadings
    edited: Scene
    placement: Placement
    details: Mapping[str, Json]
    """What is needed to judge how far to trust the numbers."""


def prepare(source: Image) -> SourceReadings:
    """Do once what all edits of a portrait share."""
    scene = look(_pixels(source, "the source"))
    small = shrink(scene.rgb)
    areas = parts(scene, (small.shape[0], small.shape[1]))
    person = scene.person
    smooth = view(small)
    skin = person if isinstance(person, Abstained) else read_skin(scene.rgb, person.skin)
    return SourceReadings(
        scene=scene,
        view=smooth,
        parts=areas,
        drawing=draw(scene, small, areas.face),
        skin=skin,
        witnesses=_witnesses(smooth, areas, person, skin),
        reading=person if isinstance(person, Abstained) else _read_face(scene.rgb, person.mesh),
        quality=None if isinstance(person, Abstained) else read_quality(scene.rgb, person.mesh),
        drawn=0.0 if isinstance(person, Abstained) else drawn(scene.rgb, person.mesh),
    )


def measure(source: Image | SourceReadings, edited: Image, *, labels: Mapping[str, str] | None = None) -> Measurements:
    """Compare an edit with its source. Raises `UnreadableImage` where one of them is no picture.

    `labels` only choose the distance of like strangers, where the audit discloses them.
    """
    before = source if isinstance(source, SourceReadings) else prepare(source)
    pixels = _pixels(edited, "the edited image")
    after = look(pixels)
    placed = place(before.drawing, after)
    small = view(placed.small)
    light = _light(before, small, placed)
    values: dict[str, float] = {}
    abstained: dict[str, str] = {}
    details: dict[str, Json] = {
        "light_known": light.known,
        **({"light_stops": round(light.stops, 3), "light_deviation": round(light.deviation, 3)} if light.known else {}),
        **({"light_from": light.witnesses} if light.witnesses else {}),
        **({"light_unknown": light.note} if light.note else {}),
        "face_likeness": round(placed.face_likeness, 4),
        "moved": placed.moved,
        **({"mirrored": True} if placed.mirrored else {}),
    }
    change = _change(before, small, placed, pixels)
    if isinstance(change, Abstained):
        abstained |= dict.fromkeys(CHANGED, change.reason)
    else:
        regions = {axis: change.regions.get(axis.removeprefix("changed_")) for axis in REGIONS}
        values |= {"changed_area": change.area} | {axis: share for axis, share in regions.items() if share is not None}
        abstained |= {
            axis: f"too little {axis.removeprefix('changed_')} in the source"
            for axis, share in regions.items()
            if share is None
        }
        signs = signs_of_change(change, placed)
        values["mean_delta_e"] = change.mean
        values["visible_change"] = VISIBLE if signs else NOT_VISIBLE
        details |= {
            "ssim": round(change.ssim, 4),
            "signs_of_change": list(signs),
        }
    face = _face(before, after, placed)
    skin = face if isinstance(face, Abstained) else _skin(before, face, light)
    _add_skin(values, abstained, details, skin)
    if isinstance(face, Abstained):
        abstained |= dict.fromkeys(DESCRIBED, face.reason)
    else:
        _add_face_readings(values, abstained, details, before, face, labels)
        withhold(before.drawn, drawn(face.rgb, face.mesh), values, abstained, details)
    return Measurements(
        values=values,
        abstained=abstained,
        light=light,
        skin=skin,
        change=None if isinstance(change, Abstained) else change,
        source=before,
        edited=after,
        placement=placed,
        details=details,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Face:
    """Where the edited face is measured: in the source's frame if it is there, else in its own."""

    rgb: Picture
    mesh: faces.Mesh
    paired: bool


def _face(before: SourceReadings, after: Scene, placed: Placement) -> _Face | Abstained:
    if isinstance(before.scene.person, Abstained):
        return Abstained(reason=f"{before.scene.person.reason} in the source")
    if isinstance(after.person, Abstained):
        return Abstained(reason=f"{after.person.reason} in the edited image")
    if placed.face_likeness >= load_thresholds().face.same_drawing:
        # The face has not moved: with the source's mesh on both pictures the mesh's jitter cancels out.
        return _Face(rgb=placed.rgb, mesh=before.scene.person.mesh, paired=True)
    return _Face(rgb=after.rgb, mesh=after.person.mesh, paired=False)


def _skin(before: SourceReadings, face: _Face, light: Light) -> SkinChange | Abstained:
    if isinstance(before.skin, Abstained):
        return before.skin
    if not light.known:
        return Abstained(reason=f"light unknown: {light.note}")
    if face.paired and isinstance(before.scene.person, Person):
        mask = before.scene.person.skin
    else:
        mask = faces.skin_mask(face.mesh, face.rgb.shape)
    skin = read_skin(face.rgb, mask)
    if isinstance(skin, Abstained):
        return skin
    return compare_skin(before.skin, skin, light.predict(before.skin), paired=face.paired)


def _witnesses(smooth: View, areas: Parts, person: Person | Abstained, skin: Skin | Abstained) -> Witnesses | Abstained:
    if isinstance(person, Abstained):
        return person
    return skin if isinstance(skin, Abstained) else find_witnesses(smooth, areas, person, skin)


def _light(before: SourceReadings, small: View, placed: Placement) -> Light:
    match before.skin, before.witnesses:
        case Abstained(reason=why), _:
            return Light(note=why)
        case _, Abstained(reason=why):
            return Light(note=why)
        case skin, witnesses:
            return compare_light(witnesses, small, skin, placed.covered)


def _change(before: SourceReadings, small: View, placed: Placement, pixels: Picture) -> VisibleChange | Abstained:
    side = min(pixels.shape[:2])
    least = load_thresholds().change.least_side
    if side < least:
        return Abstained(reason=f"the edited image is too small to compare: {side} of at least {least} pixels")
    person = before.scene.person
    shrunk = small.lab.shape[1] / before.scene.rgb.shape[1]
    box = 0.0 if isinstance(person, Abstained) else person.face.width * person.face.height * shrunk**2
    return compare(before.view, small, before.parts, placed.covered, face_box=box)


def _read_face(rgb: Picture, mesh: faces.Mesh) -> FaceReading:
    description = describe(rgb, mesh)
    return FaceReading(description=description, reading=heads().read(description.features))


def _add_skin(
    values: dict[str, float], abstained: dict[str, str], details: dict[str, Json], skin: SkinChange | Abstained
) -> None:
    if isinstance(skin, Abstained):
        abstained |= dict.fromkeys(SKIN, skin.reason)
        return
    values |= {"skin_delta_l": skin.delta_l, "skin_delta_e": skin.delta_e}
    details |= {"skin_lighter": round(skin.lighter, 3), "skin_darker": round(skin.darker, 3)}
    if isinstance(skin.delta_ita, Abstained):
        abstained["skin_delta_ita"] = skin.delta_ita.reason
    else:
        values["skin_delta_ita"] = skin.delta_ita


def _add_face_readings(
    values: dict[str, float],
    abstained: dict[str, str],
    details: dict[str, Json],
    before: SourceReadings,
    face: _Face,
    labels: Mapping[str, str] | None,
) -> None:
    if isinstance(before.reading, Abstained):
        abstained |= dict.fromkeys(DESCRIBED, before.reading.reason)
        return
    if unsure := _unsure(before, face):
        abstained |= dict.fromkeys(DESCRIBED, unsure)
        return
    a, b = before.reading, _read_face(face.rgb, face.mesh)
    apart = distance(a.description.identity, b.description.identity)
    drift, (stranger, group) = load_thresholds().identity.drift, cut_for(labels)
    age = heads().age_interval.difference(a.reading.age, b.reading.age)
    gender = heads().gender_interval.difference(a.reading.gender, b.reading.gender)
    values |= {
        "identity_distance": apart,
        "identity_drift": apart / drift,
        "identity_swap": apart / stranger,
        "age_delta_years": age.value,
        "gender_delta": gender.value,
    }
    quality = read_quality(face.rgb, face.mesh)
    doubts = sorted({*quality.doubts, *(before.quality.doubts if before.quality else ())})
    details |= {
        "same_person": apart < stranger,
        "identity": in_words(apart, drift, stranger),
        "identity_cut": stranger,
        "identity_cut_for": group,
        "age": [round(float(one.reading.age.mean()), 1) for one in (a, b)],
        "age_interval": [round(age.value - age.half_width, 1), round(age.value + age.half_width, 1)],
        "gender_reading": [round(float(one.reading.gender.mean()), 3) for one in (a, b)],
        "gender_interval": [round(gender.value - gender.half_width, 3), round(gender.value + gender.half_width, 3)],
        "race_shift": {
            group: round(float(after - before), 3)
            for group, before, after in zip(heads().groups, a.reading.race, b.reading.race, strict=True)
        },
        "yaw": round(quality.yaw, 1),
        "pitch": round(quality.pitch, 1),
        "sharpness": round(quality.sharpness, 2),
        **({"doubts": doubts} if doubts else {}),
    }


def _unsure(before: SourceReadings, face: _Face) -> str:
    """Why two faces cannot be read side by side; empty where they can.

    With one mesh on both pictures a poor fit is the same in both. With one each, it reads as another person.
    """
    if face.paired or not isinstance(before.scene.person, Person):
        return ""
    least = load_thresholds().face.presence
    for presence, where in ((before.scene.person.mesh.presence, "source"), (face.mesh.presence, "edited image")):
        if presence < least:
            return f"face turned away or hidden in the {where}: the fit is {presence:.2f} sure, of at least {least}"
    return ""


def _pixels(image: Image, name: str) -> Picture:
    if isinstance(image, bytes | Path):
        return read_rgb(image, name=name)
    if image.ndim != 3 or image.shape[2] != 3:
        raise UnreadableImage(f"{name} must be an array of height × width × 3 bytes, not {image.shape}.")
    return image
