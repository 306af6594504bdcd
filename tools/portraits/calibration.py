# SPDX-License-Identifier: GPL-3.0-or-later
"""The calibration set: pairs of pictures that differ in one thing by a known amount.

Twelve identities over the whole range of skin are rendered once, and again
with one parameter changed. Whoever judges edited portraits can be shown the
pairs and held against the truth.
"""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from .parameters import Parameters, Person, Quality, Setting
from .presets import PRESENTATIONS, PRESETS, Draft, greyness, make_person, recession

LICENCE = "CC0-1.0"


@dataclass(frozen=True)
class Subject:
    """One calibration identity."""

    name: str
    preset: str
    gender_presentation: str
    age: float
    lightness: float
    """Target L* of the skin: the twelve cover 28 to 80."""
    cut: str
    light: str
    towards: str
    """The preset whose shape blend the `features` axis moves to."""


SUBJECTS = (
    Subject("s01", "A", "feminine", 43, 28, "short", "softbox-left", "B"),
    Subject("s02", "A", "masculine", 43, 33, "crop", "softbox-right", "C"),
    Subject("s03", "A", "feminine", 45, 38, "crop", "window", "F"),
    Subject("s04", "E", "masculine", 43, 43, "short", "overcast", "A"),
    Subject("s05", "E", "feminine", 42, 48, "bob", "beauty", "C"),
    Subject("s06", "G", "masculine", 44, 52, "crop", "softbox-left", "B"),
    Subject("s07", "G", "feminine", 43, 56, "shoulder", "softbox-right", "C"),
    Subject("s08", "D", "masculine", 43, 60, "sidepart", "window", "E"),
    Subject("s09", "F", "feminine", 45, 65, "bob", "overcast", "A"),
    Subject("s10", "C", "feminine", 43, 70, "pixie", "softbox-left", "A"),
    Subject("s11", "B", "masculine", 42, 75, "short", "beauty", "A"),
    Subject("s12", "B", "feminine", 44, 80, "shoulder", "softbox-right", "D"),
)

FURTHER = 21
"""Further subjects of each skin tone, with the changes that only a render can make."""
_TONES = (
    ((27.0, 44.0), ("A", "A", "E")),
    ((46.0, 61.0), ("E", "G", "D")),
    ((63.0, 82.0), ("F", "C", "B")),
)
"""The L* of each tone's skin, and its presets."""
_CUTS = {"feminine": ("short", "bob", "shoulder", "pixie"), "masculine": ("crop", "short", "sidepart")}
_LIGHTS = ("softbox-left", "softbox-right", "window", "overcast", "beauty")
_ONLY_RENDERED = (("hair", 1.0), ("age", 20.0), ("gender", 1.0))


def _further() -> Iterator[Subject]:
    for tone, ((low, high), presets) in enumerate(_TONES):
        for place in range(FURTHER):
            presentation = ("feminine", "masculine")[place % 2]
            cuts = _CUTS[presentation]
            yield Subject(
                name=f"t{tone * FURTHER + place + 1:02}",
                preset=presets[place % len(presets)],
                gender_presentation=presentation,
                age=41 + place % 5,
                lightness=round(low + (high - low) * place / (FURTHER - 1), 1),
                cut=cuts[place // 2 % len(cuts)],
                light=_LIGHTS[place % len(_LIGHTS)],
                towards="B" if presets[place % len(presets)] == "A" else "A",
            )
    # One more of darker skin.
    yield Subject("t64", "A", "feminine", 42, 36, "bob", "overcast", "B")


TONE_STEPS = (-12.0, -6.0, -3.0, 3.0, 6.0, 12.0)
AGE_STEPS = (-20.0, -10.0, 10.0, 20.0)
SHARES = (0.5, 1.0)
EXPOSURES = (-1.0, -0.5, -0.25, 0.25, 0.5)
# Gains of the linear channels at full strength, luminance kept; positive amounts are warmer.
_WARM = np.array([1.16, 0.99, 0.72])
TINTS = (-1.0, -0.5, 0.5, 1.0)
UNITS = {
    "none": "",
    "skin_tone": "target L*",
    "age": "years",
    "gender": "share of the way",
    "features": "share of the way",
    "exposure": "stops",
    "light_colour": "share of full warmth",
}
_OTHER_CUT = {"short": "bob", "crop": "swept", "sidepart": "buzz", "bob": "short", "shoulder": "short", "pixie": "bob"}


@dataclass(frozen=True)
class Change:
    """A source, the same with one thing changed, and by how much."""

    subject: Subject
    axis: str
    amount: float
    description: str
    source: Parameters
    changed: Parameters

    @property
    def source_file(self) -> str:
        return f"{self.subject.name}_source.webp"

    @property
    def changed_file(self) -> str:
        if self.axis == "none":
            return self.source_file
        return f"{self.subject.name}_{self.axis}_{self.label}.webp"

    @property
    def unit(self) -> str:
        return UNITS.get(self.axis, "number of the variant")

    @property
    def label(self) -> str:
        sign = "minus" if self.amount < 0 else "plus"
        return f"{sign}{abs(self.amount):g}".replace(".", "p")

    def pictures(self) -> Iterator[tuple[str, Parameters]]:
        yield self.source_file, self.source
        yield self.changed_file, self.changed


def _source(subject: Subject, number: int, quality: Quality) -> Parameters:
    draft = Draft(
        preset=subject.preset,
        gender=PRESENTATIONS[subject.gender_presentation],
        age=subject.age,
        seed=500_000 + number,
        cut=subject.cut,
        beard=0.0,
        choice=number,
    )
    person = make_person(draft)
    _, a, b = PRESETS[subject.preset].skin_lab
    setting = Setting(light=subject.light, background="grey", garment="crew", garment_colour="slate", expression="calm")
    return Parameters(person=replace(person, skin_lab=(subject.lightness, a, b)), setting=setting, quality=quality)


def _aged(person: Person, age: float, preset: str) -> Person:
    """The same person at another age: shape, skin, grey and hairline follow the years."""
    grey = round(greyness(age) * PRESETS[preset].greying, 3)
    hair = replace(person.hair, grey=grey, recession=round(recession(age, person.gender), 3))
    return replace(person, age=age, hair=hair)


def _blended(person: Person, target: str, share: float) -> Person:
    """Shape moves to another preset's; skin, hair and iris stay."""
    goal = PRESETS[target]
    weights = {name: weight * (1 - share) for name, weight in person.features}
    for name, weight in goal.features:
        weights[name] = weights.get(name, 0.0) + weight * share
    features = tuple((name, round(weight, 4)) for name, weight in weights.items() if weight)
    return replace(person, blend=person.blend.towards(goal.blend, share), features=features)


def _tint(amount: float) -> tuple[float, float, float]:
    gain = _WARM**amount
    gain = gain / (gain @ np.array([0.2126, 0.7152, 0.0722]))
    return tuple(round(float(value), 4) for value in gain)


def _changes(subject: Subject, number: int, quality: Quality) -> Iterator[Change]:
    source = _source(subject, number, quality)
    person, setting, hair = source.person, source.setting, source.person.hair

    def change(axis: str, amount: float, description: str, **changed: Person | Setting) -> Change:
        return Change(subject, axis, amount, description, source, replace(source, **changed))

    yield change("none", 0.0, "the same picture twice")
    lightness, a, b = person.skin_lab
    for step in TONE_STEPS:
        lab = (lightness + step, a, b)
        yield change("skin_tone", step, "lightness of the skin", person=replace(person, skin_lab=lab))
    for years in AGE_STEPS:
        aged = _aged(person, person.age + years, subject.preset)
        yield change("age", years, "age of shape, skin, grey and hairline", person=aged)
    for share in SHARES:
        gender = round(person.gender + share * (1 - 2 * person.gender), 4)
        moved = replace(person, gender=gender)
        yield change("gender", share, "gender presentation of shape and skin; same haircut", person=moved)
    for share in SHARES:
        blended = _blended(person, subject.towards, share)
        yield change("features", share, f"shape towards preset {subject.towards}; same skin and hair", person=blended)
    for stops in EXPOSURES:
        exposed = replace(setting, exposure_ev=stops)
        yield change("exposure", stops, "exposure of the whole picture", setting=exposed)
    for warmth in TINTS:
        tinted = replace(setting, light_tint=_tint(warmth))
        yield change("light_colour", warmth, "colour of all light; luminance of white kept", setting=tinted)
    for variant, wall in enumerate(("clay", "night"), start=1):
        walled = replace(setting, background=wall)
        yield change("background", variant, f"background {wall} instead of {setting.background}", setting=walled)
    dressed = replace(setting, garment="shirt", garment_colour="offwhite")
    yield change("clothes", 1, "offwhite shirt instead of slate crew", setting=dressed)
    recut = replace(person, hair=replace(hair, cut=_OTHER_CUT[hair.cut]))
    yield change("hair", 1, f"cut {recut.hair.cut} instead of {hair.cut}", person=recut)
    dyed = replace(person, hair=replace(hair, melanin=0.45 if hair.melanin > 0.7 else 0.97))
    yield change("hair", 2, f"melanin {dyed.hair.melanin} instead of {hair.melanin}", person=dyed)
    for variant in (1, 2):
        other = replace(person, seed=600_000 + 100 * number + variant)
        yield change("identity", variant, "another identity at equal parameters", person=other)


def plan_calibration(quality: Quality) -> list[Change]:
    return [change for number, subject in enumerate(SUBJECTS) for change in _changes(subject, number, quality)]


def plan_further(quality: Quality) -> list[Change]:
    """More subjects, each with another age, gender presentation and haircut: enough of every tone for a limit.

    One axis after the other, tones in turn, so that what is rendered first can be measured first.
    """
    subjects = list(_further())
    changes = {
        (change.axis, change.amount, place): change
        for place, subject in enumerate(subjects)
        for change in _changes(subject, 100 + place, quality)
    }
    places = sorted(range(len(subjects)), key=lambda place: place % FURTHER)
    return [changes[axis, amount, place] for axis, amount in _ONLY_RENDERED for place in places]


COLUMNS = (
    "pair_id", "source_file", "changed_file", "axis", "amount", "unit", "description", "subject", "preset",
    "gender_presentation", "age_parameter", "source_L", "source_a", "source_b", "changed_L", "changed_a", "changed_b",
    "delta_L", "delta_E76", "source_sha256", "changed_sha256", "licence",
)  # fmt: skip


SOURCE_COLUMNS = (
    "id", "file", "sha256", "preset", "gender_presentation", "age_parameter", "skin_l", "block", "licence", "label_origin",
)  # fmt: skip


def _write_sources(folder: Path, rows: list[dict]) -> None:
    """Write portraits.csv of the sources, so that the folder is a portrait set like any other."""
    sources = {row["subject"]: row for row in rows}
    with open(folder / "portraits.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(SOURCE_COLUMNS)
        for name, row in sources.items():
            writer.writerow(
                (
                    name, row["source_file"], row["source_sha256"], row["preset"], row["gender_presentation"],
                    row["age_parameter"], row["source_L"], name, LICENCE, "rendering parameters; skin_l measured in the picture",
                )
            )  # fmt: skip


def write_manifest(folder: Path, changes: list[Change]) -> None:
    """Write manifest.csv and manifest.json of the pairs whose pictures are there; say how many are not."""
    rows, parameters = [], {}
    for change in changes:
        records = [(folder / name).with_suffix(".json") for name in (change.source_file, change.changed_file)]
        if not all(record.exists() for record in records):
            continue
        before, after = (json.loads(record.read_text()) for record in records)
        first, second = (np.array(record["measured"]["skin_lab"]) for record in (before, after))
        for record in (before, after):
            parameters[record["file"]] = record["parameters"]
        rows.append(
            dict(
                zip(
                    COLUMNS,
                    (
                        f"{change.subject.name}_{change.axis}_{change.label}", change.source_file, change.changed_file,
                        change.axis, change.amount, change.unit, change.description, change.subject.name,
                        change.subject.preset, change.subject.gender_presentation, change.subject.age,
                        *first, *second, round(float(second[0] - first[0]), 2),
                        round(float(np.linalg.norm(second - first)), 2), before["sha256"], after["sha256"], LICENCE,
                    ),
                )
            )
        )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "manifest.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    _write_sources(folder, rows)
    content = {"licence": LICENCE, "pairs": rows, "parameters": parameters}
    (folder / "manifest.json").write_text(json.dumps(content, indent=1) + "\n")
    print(f"{len(rows)} of {len(changes)} pairs in {folder / 'manifest.csv'}")
