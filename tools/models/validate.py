"""Measure how far each instrument can be trusted, by group, and write it for the validity cards.

    python tools/models/validate.py PATH/TO/FAIRFACE [--every N]

Every number is got through `stillme.instruments.measurements.measure`, as users get it. Writes
`src/stillme/instruments/cards/measured.toml`; no picture is copied.
"""

from __future__ import annotations

import argparse
import csv
import itertools
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import tomli_w
from augment import exposed, framed, mild
from fingerprint import code_hash

from stillme.core.colour import lab_to_linear, to_lab, to_srgb
from stillme.core.images import read_rgb
from stillme.instruments import faces
from stillme.instruments.identity import distance
from stillme.instruments.measurements import FaceReading, measure, prepare
from stillme.instruments.scene import Person
from stillme.instruments.thresholds import load_thresholds

CARDS = Path(__file__).resolve().parents[2] / "src" / "stillme" / "instruments" / "cards"
SHIFTS = (-12, -6, -2, 2, 6, 12)
STOPS = (-0.5, 0.0, 0.5)
ORDER = ("20s", "30s", "40s", "50s", "60s", "70plus")
EXPOSURES = ("exposure +0.4", "exposure -0.4")
ONE_PERSON = 0.45
"""Below this distance two photographs were seen to show one person: all ten pairs did, and none above."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data", type=Path, help="the folder with labels.csv")
    options.add_argument("--every", type=int, default=1, help="take only every n-th picture")
    options.add_argument("--workers", type=int, default=1)
    options.add_argument("--out", type=Path, default=CARDS)
    chosen = options.parse_args()
    with (chosen.data / "labels.csv").open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))[:: chosen.every]
    rows = [row | {"path": str(chosen.data / row["file"]), "number": str(n)} for n, row in enumerate(rows)]
    with ProcessPoolExecutor(chosen.workers) as pool:
        seen = list(pool.map(examine, rows, chunksize=4))
    usable = [one for one in seen if "reason" not in one]
    measured = {
        "code": code_hash(),
        "data": "FairFace (Karkkainen and Joo, 2021), candidates of the paper's selection",
        "images": len(seen),
        "measured": len(usable),
        "excluded": [{"file": one["file"], "reason": one["reason"]} for one in seen if "reason" in one],
        "detection": detection(seen),
        "skin": skin(usable),
        "change": change(usable),
        "identity": identity(usable),
    }
    chosen.out.mkdir(parents=True, exist_ok=True)
    text = "# Written by tools/models/validate.py; do not edit.\n" + tomli_w.dumps(measured)
    (chosen.out / "measured.toml").write_text(text, "utf-8")
    print(text)


def examine(row: dict[str, str]) -> dict:
    """Measure one picture against changed copies of itself."""
    rgb = read_rgb(Path(row["path"]))
    source = prepare(rgb)
    person = source.scene.person
    if not isinstance(person, Person) or not isinstance(source.reading, FaceReading):
        return row | {"reason": getattr(person, "reason", "")}
    variants = {"identical": rgb} | mild(rgb) | framed(rgb)
    noise = {name: dict(measure(source, picture).values) for name, picture in variants.items()}
    oval = faces.face_oval(person.mesh, source.scene.rgb.shape)
    recovered = []
    # Every third combination, another third for every picture: together they cover all of them evenly.
    for shift, stops in list(itertools.product(SHIFTS, STOPS))[int(row["number"]) % 3 :: 3]:
        picture = shifted(source.scene.rgb, oval, shift)
        found = measure(source, exposed(picture, stops) if stops else picture)
        delta = found.values.get("skin_delta_l")
        recovered.append((shift, stops, found.light.known, None if delta is None else delta - shift))
    likely = faces.person_mask(rgb)[..., None]
    background = (recoloured(rgb) * (likely < 0.3) + rgb * (likely >= 0.3)).astype(np.uint8)
    return row | {
        "noise": noise,
        "recovered": recovered,
        "background": measure(source, background).values["changed_area"],
        "embedding": source.reading.description.identity,
    }


def shifted(rgb: np.ndarray, mask: np.ndarray, by: float) -> np.ndarray:
    """Lighten or darken what the mask covers, with a soft edge."""
    lab = to_lab(rgb)
    lab[..., 0] += by * cv2.GaussianBlur(mask.astype(np.float32), (0, 0), 3)
    return to_srgb(lab_to_linear(lab))


def recoloured(rgb: np.ndarray) -> np.ndarray:
    """Give everything another hue."""
    hsv = cv2.cvtColor(rgb, cv2.COLOR_RGB2HSV)
    hsv[..., 0] = (hsv[..., 0].astype(int) + 60) % 180
    hsv[..., 1] = np.maximum(hsv[..., 1], 90)
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)


def by_group(usable: list[dict]) -> dict[str, list[dict]]:
    groups: dict[str, list[dict]] = {"all": usable}
    for one in usable:
        groups.setdefault(one["race"], []).append(one)
    return dict(sorted(groups.items()))


def detection(seen: list[dict]) -> dict:
    groups: dict[str, list[bool]] = defaultdict(list)
    for one in seen:
        found = one.get("reason") != "no face found"
        groups["all"].append(found)
        groups[one["race"]].append(found)
    return {group: {"n": len(found), "found": round(float(np.mean(found)), 4)} for group, found in groups.items()}


def skin(usable: list[dict]) -> dict:
    """Error of recovered shifts, where the light could be corrected, and noise without any shift."""
    result = {}
    for group, members in by_group(usable).items():
        rows = [row for one in members for row in one["recovered"]]
        known = np.array([row[3] for row in rows if row[2] and row[3] is not None])
        quiet = [one["noise"][name].get("skin_delta_l") for one in members for name in one["noise"] if name != "mirror"]
        quiet = np.abs([value for value in quiet if value is not None])
        result[group] = {
            "n": len(members),
            "pairs": len(rows),
            "corrected": round(float(np.mean([row[2] for row in rows])), 3),
            "abstained": round(float(np.mean([row[3] is None for row in rows])), 3),
            "bias": round(float(known.mean()), 3),
            "sd": round(float(known.std()), 3),
            "within_0_8": round(float((np.abs(known) <= 0.8).mean()), 4),
            "worst": round(float(np.abs(known).max()), 2),
            "noise_q95": round(float(np.quantile(quiet, 0.95)), 3),
        }
    return result


def change(usable: list[dict]) -> dict:
    """Share of the picture that counts as changed when nobody changed it, and when the background did."""
    result = {}
    names = [name for name in usable[0]["noise"] if name not in (*EXPOSURES, "mirror")]
    for group, members in by_group(usable).items():
        still = np.array([one["noise"][name].get("changed_area", 0.0) for one in members for name in names])
        recoloured = np.array([one["background"] for one in members])
        result[group] = {
            "n": len(members),
            "still_q99": round(float(np.quantile(still, 0.99)), 4),
            "false_alarms": round(float((still > 0.02).mean()), 4),
            "background_noticed": round(float((recoloured > 0.02).mean()), 4),
        }
    return result


def identity(usable: list[dict]) -> dict:
    """Distances of the most alike (same labels, neighbouring ages), and of one and the same picture."""
    result = {}
    cuts = load_thresholds().identity
    for group, members in by_group(usable).items():
        apart = np.array(
            [
                distance(a["embedding"], b["embedding"])
                for a, b in itertools.combinations(members, 2)
                if a["race"] == b["race"] and a["gender"] == b["gender"] and neighbours(a["age"], b["age"])
            ]
        )
        apart = apart[apart >= ONE_PERSON]
        read = [(name, found["identity_distance"]) for one in members for name, found in one["noise"].items()
                if "identity_distance" in found]  # fmt: skip
        same = np.array([value for name, value in read if name != "mirror"])
        moved = np.array([value for name, value in read if name == "mirror"])
        result[group] = {
            "n": len(members),
            "stranger_pairs": len(apart),
            "cut_for_1_percent": round(float(np.quantile(apart, 0.01)), 3),
            "taken_for_one_person": round(float((apart < cuts.stranger).mean()), 4),
            "same_picture_q99": round(float(np.quantile(same, 0.99)), 3),
            "same_picture_drifted": round(float((same >= cuts.drift).mean()), 4),
            "moved_q95": round(float(np.quantile(moved, 0.95)), 3),
        }
    return result


def neighbours(a: str, b: str) -> bool:
    return a in ORDER and b in ORDER and abs(ORDER.index(a) - ORDER.index(b)) <= 1


if __name__ == "__main__":
    main()
