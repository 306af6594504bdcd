# SPDX-License-Identifier: GPL-3.0-or-later
"""The dataset card: written by code from measurements, so that it cannot say more than was measured."""

import csv
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from .instruments import Instruments, Reading


def _load(folder: Path) -> list[dict]:
    with open(folder / "portraits.csv", newline="") as file:
        rows = [dict(row) for row in csv.DictReader(file)]
    for row in rows:
        row["record"] = json.loads((folder / row["file"]).with_suffix(".json").read_text())
    return rows


def _read_all(folder: Path, rows: list[dict], models: Path) -> dict[str, Reading | None]:
    instruments = Instruments(models)
    readings = {}
    for row in rows:
        with Image.open(folder / row["file"]) as picture:
            readings[row["id"]] = instruments.read(np.asarray(picture.convert("RGB")))
    return readings


def _table(header: Iterable[str], lines: Iterable[Iterable[object]]) -> str:
    header = list(header)
    body = ["| " + " | ".join(str(value) for value in line) + " |" for line in lines]
    return "\n".join(["| " + " | ".join(header) + " |", "|" + "---|" * len(header), *body])


def _groups(rows: list[dict], key: str) -> dict[str, list[dict]]:
    groups: dict[str, list[dict]] = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return dict(sorted(groups.items()))


def _mean_sd(values: Iterable[float], digits: int = 1) -> str:
    array = np.array(list(values), float)
    return f"{array.mean():.{digits}f} ± {array.std():.{digits}f}"


def _range(values: Iterable[float], digits: int = 0) -> str:
    array = np.array(list(values), float)
    return f"{array.min():.{digits}f} … {array.max():.{digits}f}"


def _within_cell(rows: list[dict], value: Callable[[dict], np.ndarray]) -> dict[str, tuple[float, float, float]]:
    """Per preset: mean signed L* difference, mean and largest colour difference to the cell's mean."""
    cells = _groups(rows, "cell")
    differences: dict[str, list[np.ndarray]] = {}
    for members in cells.values():
        for seed in {row["identity_seed"] for row in members}:
            block = [row for row in members if row["identity_seed"] == seed]
            middle = np.mean([value(row) for row in block], axis=0)
            for row in block:
                differences.setdefault(row["preset"], []).append(value(row) - middle)
    result = {}
    for preset, parts in sorted(differences.items()):
        array = np.array(parts)
        distance = np.linalg.norm(array, axis=1)
        result[preset] = (float(array[:, 0].mean()), float(distance.mean()), float(distance.max()))
    return result


def _rank_correlation(first: list[float], second: list[float]) -> float:
    def ranks(values: list[float]) -> np.ndarray:
        array = np.array(values)
        return np.array([(array < value).sum() + ((array == value).sum() - 1) / 2 for value in array])

    return float(np.corrcoef(ranks(first), ranks(second))[0, 1])


def _order_agreement(rows: list[dict], readings: dict[str, Reading]) -> tuple[int, int]:
    """Of all pairs of ages of one preset and presentation, how many read in the right order."""
    right = total = 0
    for row in rows:
        for other in rows:
            same = row["preset"] == other["preset"] and row["gender_presentation"] == other["gender_presentation"]
            if same and float(row["age_parameter"]) < float(other["age_parameter"]):
                total += 1
                right += readings[row["id"]].years < readings[other["id"]].years
    return right, total


def write_card(folder: Path, models: Path) -> None:
    """Write CARD.md and card.json (the numbers behind it)."""
    rows = _load(folder)
    read = _read_all(folder, rows, models)
    found = {name: reading for name, reading in read.items() if reading}
    readable = [row for row in rows if row["id"] in found]
    size = sum((folder / row["file"]).stat().st_size for row in rows)
    quality = rows[0]["record"]["parameters"]["quality"]

    sections = [_introduction(rows, size, quality), _skin_section(rows), _setting_section(rows)]
    sections += [
        _face_section(rows, read),
        _age_section(readable, found),
        _gender_section(readable, found),
        _limits(rows),
    ]
    (folder / "CARD.md").write_text("\n\n".join(sections) + "\n")
    numbers = {
        row["id"]: {
            "faces": read[row["id"]].faces if read[row["id"]] else 0,
            "read_years": round(found[row["id"]].years, 1) if row["id"] in found else None,
            "read_masculine": round(found[row["id"]].masculine, 3) if row["id"] in found else None,
            **row["record"]["measured"],
        }
        for row in rows
    }
    (folder / "card.json").write_text(json.dumps(numbers, indent=1) + "\n")
    print(f"{folder / 'CARD.md'}: {len(rows)} portraits, {size / 1e6:.1f} MB")


def _introduction(rows: list[dict], size: int, quality: dict) -> str:
    cells = len({row["cell"] for row in rows})
    seeds = len({row["identity_seed"] for row in rows})
    presets = len({row["preset"] for row in rows})
    title = "synthetic portraits" if seeds <= cells else f"synthetic portraits, {seeds} identities"
    return f"""# Dataset card: {title}

*Written by `python -m portraits card` from the pictures; do not edit by hand.*

{len(rows)} renders of people who do not exist: {presets} appearance presets × {cells} gender × age cells,
{seeds} identities, {quality["size"]} px, {size / 1e6:.1f} MB as WebP, CC0-1.0. No photograph of anybody went into
them: the shapes are MakeHuman's CC0 base mesh and targets; skin, hair, eyes and clothes are procedural.

**Counterfactual by design.** Within a cell (and identity) the identity seed, camera, light, background, garment,
haircut and expression are the same and only the preset changes; between cells they vary. Use the cell as a block.

**What the labels are.** `preset`, the three blend weights, `gender_presentation` and `age_parameter` are rendering
parameters. `skin_l`, `skin_a`, `skin_b`, `skin_ita`, `monk_nearest` are measured in the finished picture (cheeks and forehead).
**What they are not.** Presets are not races or ethnicities and A to G stand for nobody; the blend weights are names of
MakeHuman's shape axes, not ancestry; presentation is not gender identity; the age is a parameter, not an age.
A preset changes shape, skin, hair and iris together, so a difference between presets cannot be laid to one of them;
the calibration set changes one at a time."""


def _skin_section(rows: list[dict]) -> str:
    lines = []
    for preset, members in _groups(rows, "preset").items():
        aimed = [
            np.linalg.norm(
                np.array(row["record"]["measured"]["skin_lab"]) - row["record"]["parameters"]["person"]["skin_lab"]
            )
            for row in members
        ]
        tones = sorted({int(row["monk_nearest"]) for row in members})
        lines.append(
            (
                preset,
                len(members),
                *(_mean_sd(float(row[channel]) for row in members) for channel in ("skin_l", "skin_a", "skin_b")),
                _range(float(row["skin_ita"]) for row in members),
                ", ".join(map(str, tones)),
                f"{np.median(aimed):.1f}",
            )
        )
    table = _table(("preset", "n", "L*", "a*", "b*", "ITA (°)", "nearest Monk", "median ΔE76 to target"), lines)
    return f"## Skin, measured\n\nMean ± standard deviation over cells.\n\n{table}"


def _setting_section(rows: list[dict]) -> str:
    background = _within_cell(rows, lambda row: np.array(row["record"]["measured"]["background_lab"]))
    garment = _within_cell(rows, lambda row: np.array(row["record"]["measured"]["garment_lab"]))
    lines = [
        (preset, *(f"{value:+.2f}" if i == 0 else f"{value:.2f}" for i, value in enumerate(background[preset])),
         *(f"{value:+.2f}" if i == 0 else f"{value:.2f}" for i, value in enumerate(garment[preset])))
        for preset in background
    ]  # fmt: skip
    header = ("preset", "background ΔL*", "mean ΔE76", "largest", "garment ΔL*", "mean ΔE76", "largest")
    return f"""## Exposure and background do not differ between presets

Lamps, exposure and wall are the same numbers within a cell. Measured: colour of the open wall at the top, and of the
shoulders' cloth (same dye, same light: a grey card in all but name), as difference from the cell's mean.
What remains is geometry: another shape or hair shades a shoulder or covers a bit of wall.

{_table(header, lines)}"""


def _face_section(rows: list[dict], read: dict[str, Reading | None]) -> str:
    wrong = [row["id"] for row in rows if not read[row["id"]] or read[row["id"]].faces != 1]
    lines = []
    for preset, members in _groups(rows, "preset").items():
        one = sum(1 for row in members if read[row["id"]] and read[row["id"]].faces == 1)
        lines.append((preset, f"{one} / {len(members)}"))
    failures = f"Not exactly one face: {', '.join(wrong)}." if wrong else "No failures."
    table = _table(("preset", "exactly one face"), lines)
    return f"## A face detector finds one face\n\nYuNet (2023mar), confidence 0.6.\n\n{table}\n\n{failures}"


def _age_section(rows: list[dict], readings: dict[str, Reading]) -> str:
    ages = sorted({int(row["age_parameter"]) for row in rows})

    def mean_years(members: list[dict]) -> str:
        return f"{np.mean([readings[row['id']].years for row in members]):.0f}" if members else "–"

    lines = []
    for key in ("preset", "gender_presentation"):
        for group, members in _groups(rows, key).items():
            right, total = _order_agreement(members, readings)
            correlation = _rank_correlation(
                [float(row["age_parameter"]) for row in members], [readings[row["id"]].years for row in members]
            )
            per_age = [mean_years([row for row in members if int(row["age_parameter"]) == age]) for age in ages]
            lines.append((group, *per_age, f"{correlation:.2f}", f"{right} / {total}"))
    right, total = _order_agreement(rows, readings)
    everyone = [mean_years([row for row in rows if int(row["age_parameter"]) == age]) for age in ages]
    correlation = _rank_correlation(
        [float(row["age_parameter"]) for row in rows], [readings[row["id"]].years for row in rows]
    )
    lines.append(("all", *everyone, f"{correlation:.2f}", f"{right} / {total}"))
    reversed_pairs = _adjacent_reversals(rows, readings)
    listed = "; ".join(reversed_pairs) if reversed_pairs else "none"
    return f"""## Older parameters read older

Mean of two estimators (Cydral age-v1; face-api), which were taught on photographs. Years read per age parameter,
Spearman correlation, and pairs of ages (same preset, same presentation) read in the right order.

{_table(("group", *map(str, ages), "ρ", "pairs in order"), lines)}

Neighbouring ages read in the wrong order by more than 3 years: {listed}."""


def _adjacent_reversals(rows: list[dict], readings: dict[str, Reading]) -> list[str]:
    result = []
    ages = sorted({int(row["age_parameter"]) for row in rows})
    places = {(row["preset"], row["gender_presentation"], int(row["age_parameter"])): row["id"] for row in rows}
    for (preset, presentation, age), name in sorted(places.items()):
        if age == ages[-1]:
            continue
        other = places.get((preset, presentation, ages[ages.index(age) + 1]))
        if other and readings[name].years > readings[other].years + 3:
            result.append(f"{name} ({readings[name].years:.0f}) > {other} ({readings[other].years:.0f})")
    return result


def _gender_section(rows: list[dict], readings: dict[str, Reading]) -> str:
    def agrees(row: dict) -> bool:
        return (readings[row["id"]].masculine > 0.5) == (row["gender_presentation"] == "masculine")

    lines = []
    for key in ("preset", "gender_presentation", "age_parameter"):
        for group, members in _groups(rows, key).items():
            lines.append((group, f"{sum(map(agrees, members))} / {len(members)}"))
    failures = [f"{row['id']} ({readings[row['id']].masculine:.2f})" for row in rows if not agrees(row)]
    ordered = total = 0
    cells = {(row["preset"], row["age_parameter"], row["gender_presentation"]): row["id"] for row in rows}
    for (preset, age, presentation), name in cells.items():
        if presentation == "feminine" and (other := cells.get((preset, age, "masculine"))):
            total += 1
            ordered += readings[name].masculine < readings[other].masculine
    listed = ", ".join(failures) if failures else "none"
    return f"""## Gender presentation is read as rendered

Mean probability of "male" of the same two estimators, cut at 0.5. Of {total} matched pairs (same preset, same age)
{ordered} read in the right order.

{_table(("group", "agree"), lines)}

Read otherwise (probability of "male"): {listed}."""


def _limits(rows: list[dict]) -> str:
    cells, seeds = len({row["cell"] for row in rows}), len({row["identity_seed"] for row in rows})
    few = "One identity per cell means that identities of one preset differ only between\ncells; render more with `--identities`."
    several = f"A cell has {seeds // cells} identities: few for what varies between people\nof one age and presentation; render more with `--identities`."
    return f"""## What it is not good for

Renders look like game characters, not photographs: editors may treat them otherwise than people's pictures, so no
claim about a real editor's fairness rests on them alone. The estimators' years are not the parameters' years. Presets
D to G are arbitrary mixtures. {several if seeds > cells else few} The look was adjusted with these measurements in view: the lamps' gains on
some test renders of this set's own parameters, ageing (and how much of it feminine faces carry) after reading test
renders with the same two estimators. So the agreement above describes the set; it is no independent check of the
generator. Do not use the set to teach or validate estimators of race, gender or age."""
