# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of a rendered set: portraits.csv and parameters.json."""

import csv
import json
from pathlib import Path

from .factorial import Planned
from .parameters import GENERATOR_VERSION

LICENCE = "CC0-1.0"
LABEL_ORIGIN = "rendering parameters; skin colour measured in the picture"
AGE_BANDS = ((30, "20-29"), (40, "30-39"), (50, "40-49"), (60, "50-59"), (70, "60-69"), (200, "70+"))

COLUMNS = (
    "id", "file", "sha256", "preset", "gender_presentation", "age_parameter", "age_band", "african", "asian",
    "caucasian", "cell", "block", "identity_seed", "skin_l", "skin_a", "skin_b", "skin_ita", "monk_nearest", "licence", "label_origin",
)  # fmt: skip


def age_band(age: float) -> str:
    return next(band for limit, band in AGE_BANDS if age < limit)


def write_tables(folder: Path, planned: list[Planned]) -> None:
    """List the portraits whose pictures are there; say how many are not."""
    rows, parameters = [], {}
    for one in planned:
        path = folder / f"{one.id}.json"
        if not path.exists():
            continue
        record = json.loads(path.read_text())
        person, measured = one.parameters.person, record["measured"]
        values = (
            one.id, record["file"], record["sha256"], one.preset, one.cell.gender_presentation, one.cell.age,
            age_band(one.cell.age), person.blend.african, person.blend.asian, person.blend.caucasian, one.cell.name,
            f"{one.cell.name}_{one.identity + 1}", person.seed, *measured["skin_lab"], measured["ita"], measured["monk_nearest"], LICENCE, LABEL_ORIGIN,
        )  # fmt: skip
        rows.append(dict(zip(COLUMNS, values)))
        parameters[one.id] = {
            "digest": record["digest"], **record["parameters"], "measured": measured, "patches": record["patches"],
        }  # fmt: skip
    with open(folder / "portraits.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    content = {"generator_version": GENERATOR_VERSION, "licence": LICENCE, "portraits": parameters}
    (folder / "parameters.json").write_text(json.dumps(content, indent=1) + "\n")
    print(f"{len(rows)} of {len(planned)} portraits in {folder / 'portraits.csv'}")
