"""Train the rule that tells drawn faces from photographed ones, and measure it on other people and on other styles.

    python tools/models/train_domain.py PATH/TO/FAIRFACE [DRAWINGS] [--people 4] [--write]

Photographs: some people of each group of a FairFace copy (`labels.csv` with `file` and `race`) and of the embedded
renders, as they are and after what storage, light and common filters do. Drawings of the same people: OpenCV's pencil,
a plain cartoon, and MediaPipe's three stylizers from the folder DRAWINGS. `draw` of docs/examples/stylizer/stylize.py
makes those; save them as STYLE-HASH.png, with the first 16 characters of the photograph's SHA-256. Without DRAWINGS the
shipped rule, which has seen them, is trained further on photographs, pencil and cartoon, and stays as near to what it
was as these allow.
"""

from __future__ import annotations

import argparse
import csv
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

from stillme.core.colour import to_linear, to_srgb
from stillme.core.files import sha256_of
from stillme.instruments import faces
from stillme.instruments.domain import describe, rule
from stillme.portraits import portraits

Picture = NDArray[np.uint8]
DOMAIN = Path(__file__).resolve().parents[2] / "src" / "stillme" / "instruments" / "domain.npz"
RIDGE = 1.0
MARGIN = 0.1
"""By which the limit lies beyond the photograph that looks most like a drawing."""
FOLDS = 5
STYLES = ("color-sketch", "color-ink", "oil-painting")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("fairface", type=Path)
    options.add_argument("drawings", type=Path, nargs="?")
    options.add_argument("--people", type=int, default=4, help="of each group")
    options.add_argument("--write", action="store_true")
    chosen = options.parse_args()
    people = [(group, path) for group, paths in photographs(chosen.fairface).items() for path in paths[: chosen.people]]
    rows = list(samples([*people, *renders()[::6]], chosen.drawings))
    kinds, groups, names = (np.array([row[place] for row in rows]) for place in range(3))
    made = train(kinds == "drawing", groups, names, np.array([row[3] for row in rows]), further=chosen.drawings is None)
    if chosen.write:
        np.savez(DOMAIN, **made)


def train(drawn: NDArray, groups: NDArray, names: NDArray, numbers: NDArray, *, further: bool) -> dict[str, NDArray]:
    """Print how good the rule is on people and on styles that it has not seen; return it, trained on all."""
    person = np.cumsum(names == "as it is")
    mean, scale = numbers[~drawn].mean(axis=0), numbers[~drawn].std(axis=0) + 1e-6
    start = np.zeros(numbers.shape[1])
    if further:
        mean, scale, start = rule().mean, rule().scale, rule().weights
    standard = (numbers - mean) / scale
    scores = np.zeros(len(numbers))
    for fold in range(FOLDS):
        left_out = person % FOLDS == fold
        weights, limit = fit(standard[~left_out], drawn[~left_out], start)
        scores[left_out] = standard[left_out] @ weights - limit
    print(f"people left out in turn: {person.max()} people, {(~drawn).sum()} photographs, {drawn.sum()} drawings")
    for kind, members in (("photographs", ~drawn), ("drawings", drawn)):
        print(f"{kind}: {(scores[members] > 0).mean():.3f} called drawings")
        for labels in (groups, names):
            for label in sorted(set(labels[members])):
                part = scores[members & (labels == label)]
                print(f"  {label:22} {len(part):5}  {(part > 0).mean():.3f}")
    print("styles left out in turn:")
    for style in sorted(set(names[drawn])):
        left_out = drawn & (names == style)
        weights, limit = fit(standard[~left_out], drawn[~left_out], start)
        print(f"  {style:22} {(standard[left_out] @ weights > limit).mean():.3f}")
    weights, limit = fit(standard, drawn, start)
    made = {"mean": mean, "scale": scale, "weights": weights, "limit": np.array(limit)}
    return {name: array.astype(np.float32) for name, array in made.items()}


def fit(standard: NDArray, drawn: NDArray, start: NDArray) -> tuple[NDArray, float]:
    """Logistic regression with equal weight for both kinds, and the limit that no photograph passes."""
    weight = np.where(drawn, 0.5 / drawn.mean(), 0.5 / (1 - drawn.mean()))
    sign = np.where(drawn, 1.0, -1.0)
    columns = np.hstack([standard, np.ones((len(standard), 1))])

    def loss(values: NDArray) -> tuple[float, NDArray]:
        margin = sign * (columns @ values)
        slope = columns.T @ (weight * sign / (1 + np.exp(np.clip(margin, -50, 50))))
        penalty = np.append(values[:-1] - start, 0.0)
        return float((weight * np.logaddexp(0, -margin)).sum() + RIDGE * penalty @ penalty), 2 * RIDGE * penalty - slope

    found = minimize(loss, np.append(start, 0.0), jac=True, method="L-BFGS-B", options={"maxiter": 500})
    weights = found.x[:-1]
    return weights, float((standard[~drawn] @ weights).max()) + MARGIN


def samples(people: list[tuple[str, Path]], drawings: Path | None) -> Iterator[tuple[str, str, str, NDArray]]:
    """Kind, group, change and numbers of every face that is found."""
    for group, path in people:
        rgb = np.asarray(Image.open(path).convert("RGB"))
        made: list[tuple[str, str, Picture]] = [("photograph", name, picture) for name, picture in changed(rgb).items()]
        made += [("drawing", name, picture) for name, picture in filters(rgb).items()]
        if drawings is not None:
            made += [("drawing", style, picture) for style, picture in stylised(path, drawings)]
        for kind, name, picture in made:
            found = faces.find(picture)
            if found:
                yield kind, group, name, describe(picture, faces.mesh(picture, found[0]))


def photographs(folder: Path) -> dict[str, list[Path]]:
    """By group, in the order of a lot."""
    groups: dict[str, list[Path]] = defaultdict(list)
    with (folder / "labels.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            groups[row["race"]].append(folder / row["file"])
    chance = random.Random(1)
    return {group: chance.sample(groups[group], len(groups[group])) for group in sorted(groups)}


def renders() -> list[tuple[str, Path]]:
    return [(f"render {portrait.attributes['preset']}", portrait.image.path) for portrait in portraits()]


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


def stylised(path: Path, folder: Path) -> Iterator[tuple[str, Picture]]:
    for style in STYLES:
        drawing = folder / f"{style}-{sha256_of(path)[:16]}.png"
        # MediaPipe finds no face in some photographs.
        if drawing.exists():
            yield style, np.asarray(Image.open(drawing).convert("RGB"))


if __name__ == "__main__":
    main()
