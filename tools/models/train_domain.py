"""Train the rule that tells drawings from photographs, and measure it on styles that it has not seen.

    python tools/models/train_domain.py PATH/TO/FAIRFACE DRAWINGS [--portraits 84] [--write]

Photographs: a FairFace copy (`labels.csv` with `file` and `race`), the embedded renders, and both after everything that
storage, light and common filters do to a photograph. Drawings: the same people by MediaPipe's three stylizers, kept in
the folder DRAWINGS, and by OpenCV's stylization and pencil, and a plain cartoon. Each style is also left out in turn.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import augment
import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.optimize import minimize

from stillme import faces
from stillme.colour import to_linear, to_srgb
from stillme.editors.neural.stylizer import STYLES, FaceStylizer, StylizerParameters
from stillme.instruments.domain import FEATURES, read_features
from stillme.portraits.synthetic import portraits
from stillme.types import Arm, Edited, ImageFile, Portrait, Prompt, Request

Picture = NDArray[np.uint8]
RULE = Path(__file__).resolve().parents[2] / "src" / "stillme" / "instruments" / "domain.json"
FALSE_ALARMS = 0.005
"""The share of photographs, filters included, that the limit lets through as drawings."""
RIDGE = 1.0


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("fairface", type=Path)
    options.add_argument("drawings", type=Path)
    options.add_argument("--portraits", type=int, default=28)
    options.add_argument("--write", action="store_true")
    chosen = options.parse_args()
    rows = list(samples(chosen.fairface, chosen.drawings, chosen.portraits))
    numbers = np.array([row[3] for row in rows])
    kinds = np.array([row[0] for row in rows])
    groups = np.array([row[1] for row in rows])
    names = np.array([row[2] for row in rows])
    drawn = kinds == "drawing"
    print(f"{(~drawn).sum()} photographs, {drawn.sum()} drawings, of {len(set(names))} kinds")
    centre, scale = numbers[~drawn].mean(axis=0), numbers[~drawn].std(axis=0) + 1e-9
    for place, name in enumerate(FEATURES):
        print(
            f"{name:18} photographs {numbers[~drawn, place].mean():7.3f}  drawings {numbers[drawn, place].mean():7.3f}"
        )
    print("\nleft out            found among drawings")
    for style in sorted(set(names[drawn])):
        seen = ~(drawn & (names == style))
        weights, limit = fit((numbers[seen] - centre) / scale, drawn[seen])
        scores = (numbers[~seen] - centre) / scale @ weights - limit
        print(f"{style:18} {(scores > 0).mean():8.3f}")
    weights, limit = fit((numbers - centre) / scale, drawn)
    scores = (numbers - centre) / scale @ weights - limit
    print("\nfalse alarms by group and by change; found by style")
    for kind, labels in (("photograph", groups), ("photograph", names), ("drawing", names), ("drawing", groups)):
        for label in sorted(set(labels[kinds == kind])):
            part = scores[(kinds == kind) & (labels == label)]
            print(f"{kind:12} {label:26} {len(part):5} {(part > 0).mean():7.3f}")
    print("weights", dict(zip(FEATURES, np.round(weights, 2).tolist(), strict=True)), "limit", round(limit, 2))
    if chosen.write:
        rule = {"centre": centre, "scale": scale, "weights": weights}
        stored = {name: [round(float(value), 4) for value in array] for name, array in rule.items()}
        RULE.write_text(json.dumps(stored | {"limit": round(float(limit), 4)}, indent=1) + "\n", "utf-8")


def fit(numbers: NDArray, drawn: NDArray) -> tuple[NDArray, float]:
    """Logistic regression with equal weight for both kinds; the limit lets few photographs through."""
    weight = np.where(drawn, 0.5 / drawn.mean(), 0.5 / (1 - drawn.mean()))
    sign = np.where(drawn, 1.0, -1.0)
    columns = np.hstack([numbers, np.ones((len(numbers), 1))])

    def loss(values: NDArray) -> float:
        return float((weight * np.logaddexp(0, -sign * (columns @ values))).sum() + RIDGE * (values[:-1] ** 2).sum())

    weights = minimize(loss, np.zeros(columns.shape[1]), method="L-BFGS-B").x[:-1]
    return weights, float(np.quantile(numbers[~drawn] @ weights, 1 - FALSE_ALARMS))


def samples(fairface: Path, drawings: Path, count: int) -> Iterator[tuple[str, str, str, tuple[float, ...]]]:
    """Kind, group, name and features of every face that is found."""
    drawings.mkdir(parents=True, exist_ok=True)
    editors = {style: FaceStylizer(StylizerParameters(style=style, output="square")) for style in STYLES}
    for group, path in [*photographs(fairface, count), *renders()]:
        rgb = np.asarray(Image.open(path).convert("RGB"))
        made: list[tuple[str, str, Picture]] = [("photograph", name, picture) for name, picture in changed(rgb).items()]
        made += [("drawing", name, picture) for name, picture in filters(rgb).items()]
        made += [("drawing", style, picture) for style, picture in stylised(path, drawings, editors)]
        for kind, name, picture in made:
            found = faces.find(picture)
            if found:
                yield kind, group, name, read_features(picture, faces.mesh(picture, found[0]))


def photographs(folder: Path, count: int) -> list[tuple[str, Path]]:
    groups: dict[str, list[Path]] = defaultdict(list)
    with (folder / "labels.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            groups[row["race"]].append(folder / row["file"])
    chance = random.Random(1)
    each = max(count // len(groups), 1)
    return [(group, path) for group in sorted(groups) for path in chance.sample(groups[group], each)]


def renders() -> list[tuple[str, Path]]:
    return [(f"render {portrait.attributes['preset']}", portrait.image.path) for portrait in portraits()[::6]]


def changed(rgb: Picture) -> dict[str, Picture]:
    """A photograph stays one: storage, light, and the filters of every phone."""
    linear = to_linear(rgb)
    sharp = cv2.addWeighted(rgb, 2.0, cv2.GaussianBlur(rgb, (0, 0), 2), -1.0, 0)
    noise = np.random.default_rng(0).normal(0, 8, rgb.shape)
    grey = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    return {
        "as it is": rgb,
        **augment.mild(rgb),
        "exposure -1.2": augment.exposed(rgb, -1.2),
        "exposure +1": augment.exposed(rgb, 1.0),
        "warm light": to_srgb(linear * np.array([1.3, 1.0, 0.7], dtype=np.float32)),
        "cold light": to_srgb(linear * np.array([0.8, 1.0, 1.3], dtype=np.float32)),
        "sharpened": sharp,
        "noise": np.clip(rgb + noise, 0, 255).astype(np.uint8),
        "smoothed": cv2.bilateralFilter(rgb, 9, 40, 5),
        "grey": cv2.cvtColor(grey, cv2.COLOR_GRAY2RGB),
    }


def filters(rgb: Picture) -> dict[str, Picture]:
    """Drawings by classical means."""
    small = cv2.resize(rgb, (448, 448), interpolation=cv2.INTER_AREA)
    _, pencil = cv2.pencilSketch(cv2.cvtColor(small, cv2.COLOR_RGB2BGR), sigma_s=40, sigma_r=0.07, shade_factor=0.04)
    smooth = cv2.bilateralFilter(cv2.bilateralFilter(small, 9, 60, 9), 9, 60, 9)
    edges = cv2.adaptiveThreshold(
        cv2.medianBlur(cv2.cvtColor(small, cv2.COLOR_RGB2GRAY), 5), 255, cv2.ADAPTIVE_THRESH_MEAN_C,
        cv2.THRESH_BINARY, 9, 4,
    )  # fmt: skip
    flat = ((smooth // 32) * 32 + 16).astype(np.uint8)
    return {"pencil": cv2.cvtColor(pencil, cv2.COLOR_BGR2RGB), "cartoon": cv2.bitwise_and(flat, flat, mask=edges)}


def stylised(path: Path, folder: Path, editors: dict[str, FaceStylizer]) -> Iterator[tuple[str, Picture]]:
    portrait = Portrait(id=path.stem, image=ImageFile.of(path), attributes={}, label_origin="", licence="")
    for style, editor in editors.items():
        kept = folder / f"{style}-{portrait.image.sha256[:16]}.png"
        if not kept.exists():
            prompt = Prompt(id=style, text="", category="", subcategory="")
            request = Request(
                portraits=(portrait,), prompt=prompt, arm=Arm.BASELINE, instruction="", editor=editor.spec, seed=1
            )
            outcome = next(iter(editor.edit([request])))
            if not isinstance(outcome, Edited):
                continue
            kept.write_bytes(outcome.image)
        yield style, np.asarray(Image.open(kept).convert("RGB"))


if __name__ == "__main__":
    main()
