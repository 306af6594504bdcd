"""Describe what photographs of faces look like, and measure how well drawings are told from them.

    python tools/models/train_domain.py PATH/TO/FAIRFACE DRAWINGS [--photographs 35] [--drawn 4] [--write]

Made from photographs alone: a FairFace copy (`labels.csv` with `file` and `race`) and the embedded renders, as they are
and after what storage, light and common filters do. Tried on other people: their photographs after every such change,
and drawings of them by MediaPipe's three stylizers (kept in the folder DRAWINGS), OpenCV's pencil, and a plain cartoon.
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

from stillme import faces
from stillme.colour import to_linear, to_srgb
from stillme.editors.neural.stylizer import STYLES, FaceStylizer, StylizerParameters
from stillme.instruments.domain import Domain, describe
from stillme.portraits.synthetic import portraits
from stillme.types import Arm, Edited, ImageFile, Portrait, Prompt, Request

Picture = NDArray[np.uint8]
DOMAIN = Path(__file__).resolve().parents[2] / "src" / "stillme" / "instruments" / "domain.npz"
BEYOND = 0.005
"""The share of the photographs, filters included, that lie beyond the limit."""
SHRINKAGE = 0.02
CHANGES = 2
"""How many changes of each photograph are used besides itself, drawn by lot."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("fairface", type=Path)
    options.add_argument("drawings", type=Path)
    options.add_argument("--photographs", type=int, default=35, help="of each group, to learn from")
    options.add_argument("--drawn", type=int, default=4, help="of each group, to try on")
    options.add_argument("--write", action="store_true")
    chosen = options.parse_args()
    people = photographs(chosen.fairface)
    tried = [(group, path) for group, paths in people.items() for path in paths[: chosen.drawn]]
    learned = [
        (group, path)
        for group, paths in people.items()
        for path in paths[chosen.drawn : chosen.drawn + chosen.photographs]
    ]
    drawn_renders = renders()[::6]
    learned += [render for render in renders() if render not in drawn_renders]
    chance = random.Random(2)
    numbers = np.array([row for group, path in learned for row in known(path, chance)])
    mean, covariance = numbers.mean(axis=0), np.cov(numbers.T)
    covariance += SHRINKAGE * np.eye(len(mean)) * np.trace(covariance) / len(mean)
    whitening = np.linalg.cholesky(np.linalg.inv(covariance))
    limit = float(np.quantile(np.linalg.norm((numbers - mean) @ whitening, axis=1), 1 - BEYOND))
    print(f"{len(learned)} people, {len(numbers)} photographs; the limit is {limit:.2f}", flush=True)
    made = Domain(mean=mean, whitening=whitening, limit=limit)
    rows = [(*row[:3], made.distance(row[3])) for row in samples([*tried, *drawn_renders], chosen.drawings)]
    for kind in ("photograph", "drawing"):
        for place, what in ((1, "group"), (2, "change")):
            for label in sorted({row[place] for row in rows if row[0] == kind}):
                part = np.array([row[3] for row in rows if row[0] == kind and row[place] == label])
                beyond, middle = (part > 1).mean(), np.median(part)
                print(f"{kind:11} {what:7} {label:22} {len(part):5}  beyond {beyond:.3f}  median {middle:.2f}")
        part = np.array([row[3] for row in rows if row[0] == kind])
        print(f"{kind:11} all {len(part)}: beyond {(part > 1).mean():.3f}", flush=True)
    if chosen.write:
        stored = {"mean": mean, "whitening": whitening, "limit": np.array(limit)}
        np.savez(DOMAIN, **{name: array.astype(np.float32) for name, array in stored.items()})


def known(path: Path, chance: random.Random) -> Iterator[NDArray]:
    """The numbers of a photograph, and of some changes of it."""
    pictures = changed(np.asarray(Image.open(path).convert("RGB")))
    for name in ["as it is", *chance.sample(sorted(set(pictures) - {"as it is"}), CHANGES)]:
        found = faces.find(pictures[name])
        if found:
            yield describe(pictures[name], faces.mesh(pictures[name], found[0]))


def samples(people: list[tuple[str, Path]], drawings: Path) -> Iterator[tuple[str, str, str, NDArray]]:
    """Kind, group, change and numbers of every face that is found."""
    drawings.mkdir(parents=True, exist_ok=True)
    editors = {style: FaceStylizer(StylizerParameters(style=style, output="square")) for style in STYLES}
    for group, path in people:
        rgb = np.asarray(Image.open(path).convert("RGB"))
        made: list[tuple[str, str, Picture]] = [("photograph", name, picture) for name, picture in changed(rgb).items()]
        made += [("drawing", name, picture) for name, picture in filters(rgb).items()]
        made += [("drawing", style, picture) for style, picture in stylised(path, drawings, editors)]
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
