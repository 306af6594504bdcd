"""Train the linear heads for apparent race on a FairFace copy, and write what they are worth.

    python tools/models/train_heads.py PATH/TO/FAIRFACE

The folder holds `labels.csv` with at least the columns `file` and `race` (FairFace's own `fairface_label_train.csv`
works too); a larger copy gives better heads. Writes `heads/race.npz` and `cards/race_measured.toml` into
`src/stillme/instruments`. No picture is copied. Needs scipy beside stillme itself.
"""

from __future__ import annotations

import argparse
import csv
import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tomli_w
from augment import mild
from scipy.optimize import minimize

from stillme.errors import UnreadableImage
from stillme.images import read_rgb
from stillme.instruments.identity import distance, embed
from stillme.instruments.race import Heads, divergence
from stillme.instruments.scene import Person, look

INSTRUMENTS = Path(__file__).resolve().parents[2] / "src" / "stillme" / "instruments"
FOLDS = 10
PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
DUPLICATE = 0.30
"""Embedding distance below which two pictures show the same person, so that one of them is left out."""


@dataclass(frozen=True)
class Example:
    """One usable picture."""

    file: str
    race: str
    embedding: np.ndarray
    mild: tuple[np.ndarray, ...]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data", type=Path, help="the folder with labels.csv")
    options.add_argument("--out", type=Path, default=INSTRUMENTS, help="where heads/ and cards/ lie")
    chosen = options.parse_args()
    examples, excluded = read(chosen.data)
    groups = tuple(sorted({example.race for example in examples}))
    x = np.stack([example.embedding for example in examples])
    y = np.array([groups.index(example.race) for example in examples])
    folds = stratified(y, np.random.default_rng(0))
    penalty = min(PENALTIES, key=lambda value: surprise(x, y, groups, folds, value))
    held_out = [fit(x[folds != fold], y[folds != fold], groups, penalty) for fold in range(FOLDS)]
    probabilities = np.stack([held_out[fold].read(row) for fold, row in zip(folds, x, strict=True)])
    measured = {
        "images": len(examples),
        "excluded": excluded,
        "folds": FOLDS,
        "penalty": penalty,
        "accuracy": round(float((probabilities.argmax(axis=1) == y).mean()), 3),
        "recall": recall(probabilities, y, groups),
        "confusion": confusion(probabilities, y, groups),
        "nulls": nulls(examples, y, folds, held_out),
    }
    final = fit(x, y, groups, penalty)
    (chosen.out / "heads").mkdir(parents=True, exist_ok=True)
    (chosen.out / "cards").mkdir(parents=True, exist_ok=True)
    np.savez(
        chosen.out / "heads" / "race.npz",
        groups=np.array(groups),
        weights=final.weights,
        bias=final.bias,
        centre=final.centre,
        spread=final.spread,
    )
    (chosen.out / "cards" / "race_measured.toml").write_text(
        "# Written by tools/models/train_heads.py; do not edit.\n" + tomli_w.dumps(measured), "utf-8"
    )
    print(tomli_w.dumps(measured))


def read(folder: Path) -> tuple[list[Example], list[dict[str, str]]]:
    """Embed every picture; say of each one left out why."""
    with (folder / "labels.csv").open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    examples: list[Example] = []
    excluded: list[dict[str, str]] = []
    for row in rows:
        try:
            rgb = read_rgb(folder / row["file"])
        except UnreadableImage as error:
            excluded.append({"file": row["file"], "reason": str(error)})
            continue
        scene = look(rgb)
        if not isinstance(scene.person, Person):
            excluded.append({"file": row["file"], "reason": scene.person.reason})
            continue
        embedding = embed(scene.rgb, scene.person.mesh)
        twin = next((other for other in examples if distance(other.embedding, embedding) < DUPLICATE), None)
        if twin is not None:
            excluded.append({"file": row["file"], "reason": f"the same person as {twin.file}"})
            continue
        changed = tuple(embed(picture, scene.person.mesh) for picture in mild(scene.rgb).values())
        examples.append(Example(row["file"], row["race"], embedding, changed))
    return examples, excluded


def stratified(y: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Deal the examples of each group evenly into folds."""
    folds = np.zeros(len(y), dtype=int)
    for group in np.unique(y):
        members = random.permutation(np.flatnonzero(y == group))
        folds[members] = np.arange(len(members)) % FOLDS
    return folds


def fit(x: np.ndarray, y: np.ndarray, groups: tuple[str, ...], penalty: float) -> Heads:
    """Fit multinomial logistic regression with an L2 penalty; every group weighs the same."""
    centre, spread = x.mean(axis=0), x.std(axis=0)
    z = (x - centre) / spread
    target = np.eye(len(groups))[y]
    weight = (len(y) / len(groups)) / np.bincount(y, minlength=len(groups))[y]

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        parameters = flat.reshape(len(groups), -1)
        scores = z @ parameters[:, :-1].T + parameters[:, -1]
        scores -= scores.max(axis=1, keepdims=True)
        log = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        error = (np.exp(log) - target) * weight[:, None]
        gradient = np.hstack([error.T @ z + penalty * parameters[:, :-1], error.sum(axis=0)[:, None]])
        value = -(weight * (target * log).sum(axis=1)).sum() + penalty / 2 * (parameters[:, :-1] ** 2).sum()
        return float(value), gradient.ravel()

    start = np.zeros(len(groups) * (x.shape[1] + 1))
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 500})
    parameters = found.x.reshape(len(groups), -1).astype(np.float32)
    return Heads(
        groups=groups,
        weights=parameters[:, :-1],
        bias=parameters[:, -1],
        centre=centre.astype(np.float32),
        spread=spread.astype(np.float32),
    )


def surprise(x: np.ndarray, y: np.ndarray, groups: tuple[str, ...], folds: np.ndarray, penalty: float) -> float:
    """Mean log loss on the folds that were held out."""
    total = 0.0
    for fold in range(FOLDS):
        heads = fit(x[folds != fold], y[folds != fold], groups, penalty)
        held_out = zip(x[folds == fold], y[folds == fold], strict=True)
        total -= sum(float(np.log(heads.read(row)[label])) for row, label in held_out)
    return total / len(y)


def recall(probabilities: np.ndarray, y: np.ndarray, groups: tuple[str, ...]) -> dict[str, dict[str, float]]:
    guessed = probabilities.argmax(axis=1)
    return {
        group: {"n": int((y == index).sum()), "recall": round(float((guessed[y == index] == index).mean()), 3)}
        for index, group in enumerate(groups)
    }


def confusion(probabilities: np.ndarray, y: np.ndarray, groups: tuple[str, ...]) -> dict[str, dict[str, int]]:
    guessed = probabilities.argmax(axis=1)
    return {
        group: {other: int(((y == index) & (guessed == column)).sum()) for column, other in enumerate(groups)}
        for index, group in enumerate(groups)
    }


def nulls(examples: list[Example], y: np.ndarray, folds: np.ndarray, held_out: list[Heads]) -> dict[str, object]:
    """Distances without any change of race: mild augmentation, and another person of the same group.

    Beside them, another person of another group. Always read by heads that saw neither picture.
    """
    augmented: list[float] = []
    same: list[float] = []
    other: list[float] = []
    flips = {"same group": [], "other group": []}
    for fold, heads in enumerate(held_out):
        members = np.flatnonzero(folds == fold)
        vectors = {index: heads.read(examples[index].embedding) for index in members}
        for index in members:
            augmented += [divergence(vectors[index], heads.read(changed)) for changed in examples[index].mild]
        for a, b in itertools.combinations(members, 2):
            alike = y[a] == y[b]
            (same if alike else other).append(divergence(vectors[a], vectors[b]))
            flips["same group" if alike else "other group"].append(vectors[a].argmax() != vectors[b].argmax())
    return {
        "augmentation": spread(augmented),
        "same_group_swap": spread(same),
        "other_group_swap": spread(other),
        "label_flips": {name: round(float(np.mean(values)), 3) for name, values in flips.items()},
    }


def spread(values: list[float]) -> dict[str, float]:
    quantiles = {"q05": 0.05, "median": 0.5, "q90": 0.9, "q95": 0.95, "q99": 0.99}
    return {"n": len(values)} | {name: round(float(np.quantile(values, q)), 3) for name, q in quantiles.items()}


if __name__ == "__main__":
    main()
