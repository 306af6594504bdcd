"""Train the heads for apparent age, gender presentation and apparent race, and write what they are worth.

    python tools/models/train_heads.py PATH/TO/FAIRFACE

The folder holds `labels.csv` with the columns `file`, `race`, `gender` and `age`; a larger copy gives better heads.
What counts is the difference between two pictures of one person, so differences are trained, too:

- photographs with their labels, and the 84 rendered portraits with their parameters (an intercept of their own);
- changes that change nobody (JPEG, blur, exposure, another background): no difference;
- morphs between two photographs: that share of the difference between their labels.

Ten heads, each without one tenth of the people: every number in `cards/heads_measured.toml` is read by the head that
saw neither the person nor a morph of theirs. Writes `heads/heads.npz` too. No picture is copied. Same data, same seed,
same heads. `--features FILE` keeps what the networks described, so that another penalty takes seconds.
"""

from __future__ import annotations

import argparse
import csv
import itertools
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tomli_w
from augment import mild, new_background
from morph import morph
from scipy.optimize import minimize

from stillme.core.errors import UnreadableImage
from stillme.core.images import read_rgb
from stillme.instruments.faces import person_mask
from stillme.instruments.heads import Conformal, Heads
from stillme.instruments.identity import describe, distance
from stillme.instruments.scene import Person, look
from stillme.portraits import portraits

INSTRUMENTS = Path(__file__).resolve().parents[2] / "src" / "stillme" / "instruments"
FOLDS = 10
SEED = 0
DUPLICATE = 0.35
"""Embedding distance below which two photographs show the same person; the later one is left out."""
COVERED = 0.9
"""Of known differences, by the intervals."""
STILL = 3.0
"""How much a change that changes nobody weighs, against one label."""
MORPHS = 200
UNCHANGED = ("JPEG 50", "blur", "exposure -0.4")
AGE_PENALTIES = GENDER_PENALTIES = (100.0, 300.0, 1000.0, 3000.0)
RACE_PENALTIES = (300.0, 1000.0, 3000.0)
MIDDLES = {"0-2": 1, "3-9": 6, "10-19": 15, "20s": 25, "30s": 35, "40s": 45, "50s": 55, "60s": 65, "70plus": 75}
MIDDLES |= {"20-29": 25, "30-39": 35, "40-49": 45, "50-59": 55, "60-69": 65, "more than 70": 75}


@dataclass(frozen=True)
class Faces:
    """Described faces with what is known of them; one row each."""

    features: np.ndarray
    age: np.ndarray
    male: np.ndarray
    race: np.ndarray
    """Index into the groups; -1 for rendered people, whose presets are no races."""
    files: np.ndarray

    @property
    def is_photograph(self) -> np.ndarray:
        """Or rendered."""
        return self.race >= 0


@dataclass(frozen=True)
class Pairs:
    """Differences of descriptions that are known."""

    moved: np.ndarray
    first: np.ndarray
    """Index of the face that both pictures show, or that the morph began with."""
    second: np.ndarray
    """Of the face that the morph goes towards; -1 where nobody changed."""
    share: np.ndarray

    def of(self, faces: Faces, what: str) -> np.ndarray:
        """The known difference."""
        values = getattr(faces, what).astype(float)
        return np.where(self.second >= 0, self.share * (values[self.second] - values[self.first]), 0.0)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data", type=Path, help="the folder with labels.csv")
    options.add_argument("--out", type=Path, default=INSTRUMENTS, help="where heads/ and cards/ lie")
    options.add_argument("--features", type=Path, help="a file that keeps what the networks described")
    chosen = options.parse_args()
    faces, pairs, groups, excluded = described(chosen.data, chosen.features)
    folds = dealt(faces)
    solved = Training(faces, pairs, folds, groups)
    heads, measured = solved.heads()
    (chosen.out / "heads").mkdir(parents=True, exist_ok=True)
    np.savez(chosen.out / "heads" / "heads.npz", **heads.arrays())
    measured = {"images": int(faces.is_photograph.sum()), "excluded": excluded, "folds": FOLDS, "seed": SEED} | measured
    text = "# Written by tools/models/train_heads.py; do not edit.\n" + tomli_w.dumps(measured)
    (chosen.out / "cards" / "heads_measured.toml").write_text(text, "utf-8")
    print(text)


def described(folder: Path, kept: Path | None) -> tuple[Faces, Pairs, tuple[str, ...], list[dict[str, str]]]:
    """Describe every face and every known difference, or recall them."""
    if kept and kept.exists():
        with np.load(kept, allow_pickle=False) as data:
            faces = Faces(*(data[name] for name in ("features", "age", "male", "race", "files")))
            pairs = Pairs(*(data[name] for name in ("moved", "first", "second", "share")))
            excluded = [{"file": file, "reason": reason} for file, reason in data["excluded"].reshape(-1, 2).tolist()]
            return faces, pairs, tuple(data["groups"].tolist()), excluded
    faces, pairs, groups, excluded = read(folder)
    if kept:
        arrays = {name: getattr(faces, name) for name in ("features", "age", "male", "race", "files")}
        arrays |= {name: getattr(pairs, name) for name in ("moved", "first", "second", "share")}
        listed = np.array([[one["file"], one["reason"]] for one in excluded])
        np.savez(kept, **arrays, groups=np.array(groups), excluded=listed)
    return faces, pairs, groups, excluded


def read(folder: Path) -> tuple[Faces, Pairs, tuple[str, ...], list[dict[str, str]]]:
    with (folder / "labels.csv").open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    groups = tuple(sorted({row["race"] for row in rows}))
    people: list[tuple] = []
    moved: list[tuple] = []
    excluded: list[dict[str, str]] = []
    scenes = []
    for row in rows:
        try:
            scene = look(read_rgb(folder / row["file"]))
        except UnreadableImage as error:
            excluded.append({"file": row["file"], "reason": str(error)})
            continue
        if not isinstance(scene.person, Person):
            excluded.append({"file": row["file"], "reason": scene.person.reason})
            continue
        found = describe(scene.rgb, scene.person.mesh)
        twin = next((name for *_, name, other in people if distance(other, found.identity) < DUPLICATE), None)
        if twin is not None:
            excluded.append({"file": row["file"], "reason": f"the same person as {twin}"})
            continue
        place = len(people)
        labels = MIDDLES[row["age"]], row["gender"] == "Male", groups.index(row["race"])
        people.append((found.features, *labels, row["file"], found.identity))
        scenes.append((scene.rgb, scene.person.mesh))
        stored = mild(scene.rgb)
        background = new_background(scene.rgb, person_mask(scene.rgb), place)
        for picture in (*(stored[name] for name in UNCHANGED), background):
            features = describe(picture, scene.person.mesh).features
            moved.append((features - found.features, place, -1, 0.0))
        if place % 20 == 0:
            print(f"{place} photographs", flush=True)
    random = np.random.default_rng(SEED)
    for _ in range(MORPHS):
        first, second = (int(one) for one in random.choice(len(scenes), 2, replace=False))
        share = float(random.choice([0.25, 0.5, 0.75]))
        # The beginning of the morph is drawn the same way, so that the drawing itself cancels out.
        begin, end = (describe(*morph(scenes[first], scenes[second], part)).features for part in (0.0, share))
        moved.append((end - begin, first, second, share))
    for portrait in portraits():
        scene = look(read_rgb(portrait.image.path))
        assert isinstance(scene.person, Person)
        attributes = portrait.attributes
        male = attributes["gender_presentation"] == "masculine"
        features = describe(scene.rgb, scene.person.mesh).features
        people.append((features, float(attributes["age_parameter"]), male, -1, portrait.id, None))
    columns = list(zip(*people, strict=True))[:5]
    faces = Faces(np.stack(columns[0]), *(np.array(column) for column in columns[1:]))
    return faces, Pairs(*(np.array(column) for column in zip(*moved, strict=True))), groups, excluded


def dealt(faces: Faces) -> np.ndarray:
    """Deal the people of each race and gender evenly into folds; rendered ones by gender and age."""
    random = np.random.default_rng(SEED)
    folds = np.zeros(len(faces.age), dtype=int)
    cells = np.unique(np.stack([faces.race, faces.male], axis=1), axis=0)
    for race, male in cells:
        members = random.permutation(np.flatnonzero((faces.race == race) & (faces.male == male)))
        folds[members] = np.arange(len(members)) % FOLDS
    return folds


class Training:
    """Fits every head once for each fold, without that fold's people."""

    def __init__(self, faces: Faces, pairs: Pairs, folds: np.ndarray, groups: tuple[str, ...]) -> None:
        self.faces, self.pairs, self.folds, self.groups = faces, pairs, folds, groups
        photographs = faces.features[faces.is_photograph].astype(np.float64)
        self.centre, self.spread = photographs.mean(axis=0), np.maximum(photographs.std(axis=0), 1e-6)
        self.rows = (faces.features - self.centre) / self.spread
        self.moved = pairs.moved / self.spread
        ends = np.where(pairs.second >= 0, pairs.second, pairs.first)
        self.touches = np.stack([folds[pairs.first] == fold for fold in range(FOLDS)])
        self.touches |= np.stack([folds[ends] == fold for fold in range(FOLDS)])

    def heads(self) -> tuple[Heads, dict]:
        """Choose the penalties by cross-validation, and say what the heads are worth."""
        age, age_penalty = self._best(
            AGE_PENALTIES, lambda penalty: self._linear(self.faces.age, "age", penalty), self._age_error
        )
        gender, gender_penalty = self._best(
            GENDER_PENALTIES, lambda penalty: self._linear(self.faces.male, "male", penalty), self._gender_error
        )
        race, race_penalty = self._best(RACE_PENALTIES, self._groups, self._surprise)
        gender = self._from_female_to_male(gender)
        plain = Conformal(factor=1.0, least=0.0)
        heads = Heads(
            groups=self.groups, centre=self.centre, spread=self.spread, age=age, gender=gender, race=race,
            age_interval=plain, gender_interval=plain,
        )  # fmt: skip
        heads = replace(
            heads, age_interval=self._conformal(age, "age"), gender_interval=self._conformal(gender, "male")
        )
        penalties = {"age": age_penalty, "gender": gender_penalty, "race": race_penalty}
        return heads, {"penalties": penalties} | self._worth(heads)

    def _best(self, penalties, fit, error):
        tried = [(error(made := fit(penalty)), penalty, made) for penalty in penalties]
        _, penalty, made = min(tried, key=lambda one: one[:2])
        return made, penalty

    def _linear(self, known: np.ndarray, what: str, penalty: float) -> np.ndarray:
        """Ridge regression on labels and on differences; photographs and renders have an intercept each."""
        wanted, differences = known.astype(float), self.pairs.of(self.faces, what)
        weights = np.where(self.pairs.second >= 0, 1.0, STILL)
        made = []
        for fold in range(FOLDS):
            gram = penalty * np.eye(self.rows.shape[1])
            moment = np.zeros(self.rows.shape[1])
            centres = []
            for domain in (self.faces.is_photograph, ~self.faces.is_photograph):
                inside = domain & (self.folds != fold)
                x, y = self.rows[inside], wanted[inside]
                centres.append((x.mean(axis=0), y.mean()))
                gram += (x - x.mean(axis=0)).T @ (x - x.mean(axis=0))
                moment += (x - x.mean(axis=0)).T @ (y - y.mean())
            at, level = centres[0]
            apart = ~self.touches[fold]
            moved, weight = self.moved[apart], weights[apart]
            gram += (moved * weight[:, None]).T @ moved
            moment += (moved * weight[:, None]).T @ differences[apart]
            solved = np.linalg.solve(gram, moment)
            made.append(np.append(solved, level - at @ solved))
        return np.stack(made)

    def _groups(self, penalty: float) -> np.ndarray:
        """Multinomial logistic regression, every group with the same weight; still changes move no score."""
        photographs = self.faces.is_photograph
        still = self.moved[self.pairs.second < 0]
        made = []
        for fold in range(FOLDS):
            inside = photographs & (self.folds != fold)
            quiet = still[~self.touches[fold][self.pairs.second < 0]]
            ridge = penalty * np.eye(self.rows.shape[1]) + STILL * quiet.T @ quiet
            made.append(_softmax(self.rows[inside], self.faces.race[inside], len(self.groups), ridge))
        return np.stack(made)

    def _held_out(self, made: np.ndarray) -> np.ndarray:
        """What each face reads as to the head that did not see it."""
        rows = np.hstack([self.rows, np.ones((len(self.rows), 1))])
        return np.stack([made[fold] @ row for fold, row in zip(self.folds, rows, strict=True)])

    def _age_error(self, made: np.ndarray) -> float:
        photographs = self.faces.is_photograph
        return float(np.abs(self._held_out(made) - self.faces.age)[photographs].mean())

    def _gender_error(self, made: np.ndarray) -> float:
        photographs = self.faces.is_photograph
        return float(((self._held_out(made) - self.faces.male)[photographs] ** 2).mean())

    def _surprise(self, made: np.ndarray) -> float:
        shares = self._shares(made)
        return float(-np.log(shares[np.arange(len(shares)), self.faces.race[self.faces.is_photograph]]).mean())

    def _shares(self, made: np.ndarray) -> np.ndarray:
        scores = self._held_out(made)[self.faces.is_photograph]
        raised = np.exp(scores - scores.max(axis=1, keepdims=True))
        return raised / raised.sum(axis=1, keepdims=True)

    def _from_female_to_male(self, made: np.ndarray) -> np.ndarray:
        """Put women's mean at 0 and men's at 1: shrinkage would otherwise make every change look small."""
        read, photographs = self._held_out(made), self.faces.is_photograph
        male = self.faces.male.astype(bool)
        low, high = read[photographs & ~male].mean(), read[photographs & male].mean()
        scaled = made / (high - low)
        scaled[:, -1] -= low / (high - low)
        return scaled

    def _conformal(self, made: np.ndarray, what: str) -> Conformal:
        """The factor that makes intervals cover nine in ten differences of people whom no head saw."""
        spreads, errors = [], []
        for fold in range(FOLDS):
            inside = self.touches[fold]
            others = np.delete(np.arange(FOLDS), fold)
            moved = self.moved[inside] @ made[:, :-1].T
            spreads.append(moved[:, others].std(axis=1, ddof=1))
            errors.append(np.abs(moved[:, fold] - self.pairs.of(self.faces, what)[inside]))
        spread, error = np.concatenate(spreads), np.concatenate(errors)
        least = float(np.median(spread))
        return Conformal(factor=float(np.quantile(error / (spread + least), COVERED)), least=least)

    def _worth(self, heads: Heads) -> dict:
        photographs = self.faces.is_photograph
        names = np.array(self.groups)[self.faces.race[photographs]]
        ages = self._held_out(heads.age)[photographs] - self.faces.age[photographs]
        male, reads = self.faces.male[photographs].astype(bool), self._held_out(heads.gender)[photographs] >= 0.5
        shares = self._shares(heads.race)
        labels = self.faces.race[photographs]
        still = {name: self._quiet(getattr(heads, name)) for name in ("age", "gender")}
        who = np.array(self.groups)[self.faces.race[self.pairs.first[self.pairs.second < 0]]]
        worth: dict = {"age": {}, "gender": {}, "race": {}}
        for group in ("all", *self.groups):
            inside = np.ones(len(names), dtype=bool) if group == "all" else names == group
            quiet = np.ones(len(who), dtype=bool) if group == "all" else who == group
            worth["age"][group] = {
                "n": int(inside.sum()),
                "mean_absolute_error": round(float(np.abs(ages[inside]).mean()), 2),
                "bias": round(float(ages[inside].mean()), 2),
                "noise_q95": round(float(np.quantile(still["age"][quiet], 0.95)), 2),
                "noise_q99": round(float(np.quantile(still["age"][quiet], 0.99)), 2),
            }
            worth["gender"][group] = {
                "n": int(inside.sum()),
                "women_recalled": round(float((~reads[inside & ~male]).mean()), 3),
                "men_recalled": round(float(reads[inside & male].mean()), 3),
                "noise_q95": round(float(np.quantile(still["gender"][quiet], 0.95)), 3),
                "noise_q99": round(float(np.quantile(still["gender"][quiet], 0.99)), 3),
            }
            worth["race"][group] = {
                "n": int(inside.sum()),
                "recall": round(float((shares.argmax(axis=1) == labels)[inside].mean()), 3),
            }
        morphs = self.pairs.second >= 0
        for name, what in (("age", "age"), ("gender", "male")):
            worth[f"{name}_differences"] = self._differences(getattr(heads, name), what, morphs)
        for group, auc in self._shift_auc(heads).items():
            worth["race"][group]["shift_auc"] = auc
        return worth | {"race_confusion": self._confusion(shares, labels)}

    def _quiet(self, made: np.ndarray) -> np.ndarray:
        """How far a change that changes nobody moves the head that did not see the person."""
        still = self.pairs.second < 0
        fold = self.folds[self.pairs.first[still]]
        return np.abs(np.einsum("ij,ij->i", self.moved[still], made[fold, :-1]))

    def _differences(self, made: np.ndarray, what: str, morphs: np.ndarray) -> dict:
        """Known fractions between people whom the head did not see: slope, correlation and error."""
        known = self.pairs.of(self.faces, what)[morphs]
        fold = self.folds[self.pairs.first[morphs]]
        read = np.einsum("ij,ij->i", self.moved[morphs], made[fold, :-1])
        slope = float(known @ read / (known @ known))
        return {
            "morphs": int(morphs.sum()),
            "slope": round(slope, 3),
            "correlation": round(float(np.corrcoef(known, read)[0, 1]), 3),
            "mean_absolute_error": round(float(np.abs(read - known).mean()), 3),
        }

    def _shift_auc(self, heads: Heads) -> dict[str, float]:
        """How well the signed shift towards a group tells who became of that group from who stayed what they were."""
        photographs = np.flatnonzero(self.faces.is_photograph)
        rows = np.hstack([self.rows, np.ones((len(self.rows), 1))])
        became: dict[int, list[float]] = {place: [] for place in range(len(self.groups))}
        stayed: dict[int, list[float]] = {place: [] for place in range(len(self.groups))}
        for fold in range(FOLDS):
            members = [face for face in photographs if self.folds[face] == fold]
            shares = {face: _share(heads.race[fold] @ rows[face]) for face in members}
            for a, b in itertools.permutations(members, 2):
                before, after = int(self.faces.race[a]), int(self.faces.race[b])
                for group in range(len(self.groups)):
                    shift = float(shares[b][group] - shares[a][group])
                    if before == after:
                        stayed[group].append(shift)
                    elif after == group:
                        became[group].append(shift)
        by_group = {name: _auc(became[group], stayed[group]) for group, name in enumerate(self.groups)}
        by_group["all"] = float(np.mean(list(by_group.values())))
        return {name: round(auc, 3) for name, auc in by_group.items()}

    def _confusion(self, shares: np.ndarray, labels: np.ndarray) -> dict:
        counts = np.zeros((len(self.groups), len(self.groups)), dtype=int)
        np.add.at(counts, (labels, shares.argmax(axis=1)), 1)
        return {
            group: dict(zip(self.groups, map(int, row), strict=True))
            for group, row in zip(self.groups, counts, strict=True)
        }


def _softmax(x: np.ndarray, y: np.ndarray, groups: int, ridge: np.ndarray) -> np.ndarray:
    target = np.eye(groups)[y]
    weight = (len(y) / groups) / np.bincount(y, minlength=groups)[y]

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        parameters = flat.reshape(groups, -1)
        slopes = parameters[:, :-1]
        scores = x @ slopes.T + parameters[:, -1]
        scores -= scores.max(axis=1, keepdims=True)
        log = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        error = (np.exp(log) - target) * weight[:, None]
        pulled = slopes @ ridge
        gradient = np.hstack([error.T @ x + pulled, error.sum(axis=0)[:, None]])
        return float(-(weight * (target * log).sum(axis=1)).sum() + (slopes * pulled).sum() / 2), gradient.ravel()

    found = minimize(loss, np.zeros(groups * (x.shape[1] + 1)), jac=True, method="L-BFGS-B", options={"maxiter": 300})
    return found.x.reshape(groups, -1)


def _share(scores: np.ndarray) -> np.ndarray:
    raised = np.exp(scores - scores.max())
    return raised / raised.sum()


def _auc(higher: list[float], lower: list[float]) -> float:
    """How often a value of the first lies above one of the second; ties count half."""
    order = np.sort(lower)
    below = np.searchsorted(order, higher, side="left") + np.searchsorted(order, higher, side="right")
    return float(below.mean() / (2 * len(order)))


if __name__ == "__main__":
    main()
