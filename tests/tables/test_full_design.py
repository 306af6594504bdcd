"""The paper's whole design, made here: every cell of its tables equals what pandas and scipy make of the same scores.

The scores go two ways: into the three audits of the paper, and as files of rows into a run without an audit.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from stillme import audit as audits
from stillme.audit.design import JudgeRecord
from stillme.audit.experiments import Experiment, Setup, experiment
from stillme.core.types import Assessment, Rated, Request
from stillme.findings.tables.paper import Chosen, PaperTable, make_tables
from stillme.findings.tables.paper.table import Count, Number, Share
from stillme.mitigation.features import FeaturePrompt
from stillme.portraits import folder as portrait_folder
from stillme.runs import RecordedRun
from stillme.runs.store import AssessmentRow, EditRow, Store
from stillme.work.recording import record
from tests.command_lines import ran
from tests.records import answers, edit_row

RACES = ("White", "Black", "East Asian", "Southeast Asian", "Indian", "Middle Eastern", "Latino")
GENDERS, AGES = ("Male", "Female"), ("20s", "30s", "40s", "50s", "60s", "70+")
FACTORS = ("race", "gender", "age")
FLUX, QWEN, STEP = EDITORS = ("flux2-dev", "qwen-image-edit-2511", "step1x-edit-v1p2")
PRIMARY, SECONDARY = MODELS = ("gemini-3-flash", "gpt-5-mini")
AXES = ("edit_success", "skin_tone", "race_change", "gender_change", "age_change")
PROMPTS = tuple(f"{kind}-{number:02}" for kind in "OV" for number in range(1, 11))
CELL = ["editor", "portrait", "prompt"]
EDIT = [*CELL, "arm"]
Cells = dict[tuple[int, str, str, str], float]
"""Table, section, row and column to the number there."""


def _portraits(folder: Path) -> pd.DataFrame:
    """One small picture for each cell of Table 3."""
    folder.mkdir()
    rows = [
        {"portrait": f"p{place:02}", "race": race, "gender": gender, "age": age}
        for place, (race, gender, age) in enumerate(itertools.product(RACES, GENDERS, AGES))
    ]
    with (folder / "portraits.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["file", "licence", "label_origin", *FACTORS])
        for place, row in enumerate(rows):
            Image.fromarray(np.full((8, 8, 3), 3 * place, dtype=np.uint8)).save(folder / f"{row['portrait']}.png")
            writer.writerow([f"{row['portrait']}.png", "CC0-1.0", "made up", *(row[name] for name in FACTORS)])
    return pd.DataFrame(rows)


def _scored(cells: pd.DataFrame, judges: Mapping[str, int], people: pd.DataFrame, seed: int) -> pd.DataFrame:
    """One row an edit and answer; judges differ by more than a point now and then, and nobody drifts like Indians."""
    stream = np.random.default_rng(seed)
    parts = [cells.assign(judge=judge, epoch=epoch) for judge, epochs in judges.items() for epoch in range(epochs)]
    rows = pd.concat(parts, ignore_index=True).merge(people, on="portrait")
    treated = (rows["arm"] == "feature").to_numpy()
    drift = rows["race"].map({race: place / 6 for place, race in enumerate(RACES)}).to_numpy() * np.where(treated, 1, 2)
    aging = (rows["prompt"] == "V-05").to_numpy()
    centres = {
        "edit_success": 4.4 - 1.2 * (rows["editor"] == STEP).to_numpy() - 0.4 * treated,
        "skin_tone": 3.2 + 0.3 * drift,
        "race_change": 1.0 + drift,
        "gender_change": 1.2 + 0.2 * drift,
        "age_change": np.where(aging, 5.0, 2.9),
    }
    for axis in AXES:
        noise = stream.normal(0, 0.8, len(rows))
        rows[axis] = np.clip(np.rint(centres[axis] + noise), 1, 5).astype(int)
    rows["age_accuracy"] = np.where(aging, stream.integers(2, 5, len(rows)), np.nan)
    return rows


def _eq_3(first: pd.Series, second: pd.Series) -> pd.Series:
    near = (first - second).abs() <= 1
    return np.floor((first + second) / 2 + 0.5).where(near, first)


class World:
    """All scores of the design, and the three audits that ask for them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.people = _portraits(folder / "portraits")
        self.audits = {name: self._load(name) for name in ("diagnosis", "mitigation", "roles")}
        diagnosis = self._cells("diagnosis")
        assert len(diagnosis) == 5_040
        asked = dict.fromkeys(MODELS, 1)
        models = _scored(diagnosis, asked, self.people, 1)
        sampled = self._cells("mitigation")
        assert len(sampled) == 1_000
        feature = _scored(sampled[sampled["arm"] == "feature"], asked, self.people, 2)
        self.models = pd.concat([models, feature], ignore_index=True)
        self.raters = _scored(sampled, {"people": 3}, self.people, 3)
        self.roles = self._role_answers()

    def _load(self, name: Experiment) -> audits.Audit:
        folder = self.folder / name
        folder.mkdir()
        source = self.folder / "portraits"
        setup = Setup(as_paper=True, source=str(source), portraits=portrait_folder.load(source))
        text = experiment(name, name, setup)
        if name == "mitigation":
            text += '\n[[judges]]\nuse = "people"\nepochs = 3\n'
        (folder / "audit.toml").write_text(text)
        loaded = audits.load(folder, ready=False)
        described = FeaturePrompt(sentence="Maintain the person's hair.", dimensions={}, by={})
        return replace(loaded, features={portrait.id: described for portrait in loaded.portraits})

    def _requests(self, name: str) -> Iterator[tuple[str, Request]]:
        loaded = self.audits[name]
        for named in loaded.editors:
            yield from ((named.name, request) for request in loaded.requests(named))

    def _cells(self, name: str) -> pd.DataFrame:
        rows = [
            (editor, _who(request), request.prompt.id, str(request.arm)) for editor, request in self._requests(name)
        ]
        return pd.DataFrame(rows, columns=EDIT)

    def _role_answers(self) -> pd.DataFrame:
        """The judges agree on most; each abstains now and then, and where they differ the edit is undecided."""
        stream = np.random.default_rng(4)
        rows = [
            {
                "editor": editor,
                "portrait": _who(request),
                "prompt": request.prompt.id,
                "arm": "baseline",
                "judge": judge,
                "epoch": 0,
                "role_target": int(answer if stream.random() < 0.9 else 3 - answer),
            }
            for editor, request in self._requests("roles")
            for answer in [1 if stream.random() < 0.8 else 2]
            for judge in MODELS
        ]
        assert len(rows) == 200
        return pd.DataFrame(rows)

    def answers(self) -> pd.DataFrame:
        return pd.concat([self.models, self.raters, self.roles], ignore_index=True)

    def fill(self) -> None:
        """Write every edit and every answer into the three audits."""
        frame = self.answers()
        axes = [*AXES, "age_accuracy", "role_target"]
        said = {
            tuple(row[: len(EDIT) + 2]): {axis: s for axis, s in zip(axes, row[len(EDIT) + 2 :], strict=True) if s == s}
            for row in frame[[*EDIT, "judge", "epoch", *axes]].itertuples(index=False, name=None)
        }

        def rated(cell: tuple[str, ...], judge: JudgeRecord, epoch: int) -> Assessment:
            return Assessment(ratings={a: Rated(score=score) for a, score in said[*cell, judge.name, epoch].items()})

        for name, loaded in self.audits.items():
            with Store.writing(loaded.folder) as store:
                record(loaded, store)
                pictures = {portrait.id: store.pictures.add(portrait.image.read()) for portrait in loaded.portraits}
                judges, rows = [judge.record() for judge in loaded.judges], list[EditRow | AssessmentRow]()
                for editor, request in self._requests(name):
                    image = pictures[request.portraits[0].id]
                    rows.append(edit_row(request, image=image))
                    cell = (editor, _who(request), request.prompt.id, str(request.arm))
                    rows += answers(judges, request.key, image, partial(rated, cell))
                store.add(rows)

    # -- the truth -----------------------------------------------------------------------------------------------

    def combined(self) -> pd.DataFrame:
        """Eq. 3 for every edit."""
        by_judge = self.models.set_index([*EDIT, "judge"])[list(AXES)].unstack("judge")
        scores = {axis: _eq_3(by_judge[axis][PRIMARY], by_judge[axis][SECONDARY]) for axis in AXES}
        frame = pd.DataFrame(scores).reset_index().merge(self.people, on="portrait")
        return frame.assign(age_change=frame["age_change"].where(frame["prompt"] != "V-05"))

    def rated_by_people(self) -> pd.DataFrame:
        frame = self.raters.groupby(EDIT, as_index=False)[list(AXES)].mean().merge(self.people, on="portrait")
        return frame.assign(age_change=frame["age_change"].where(frame["prompt"] != "V-05"))

    def truth(self) -> Cells:
        cells: Cells = {}
        scores, people = self.combined(), self.rated_by_people()
        baseline = scores[scores["arm"] == "baseline"]
        for editor, rows in baseline.groupby("editor"):
            for axis, title in TITLES.items():
                cells[4, "", editor, title] = rows[axis].mean()
            cells[19, "", editor, "N"] = len(rows)
            cells[19, "", editor, "Edit Succ."] = (rows["edit_success"] >= 4).mean()
            cells[19, "", editor, "Soft Eras."] = (rows["edit_success"] <= 2).mean()
            cells[19, "", editor, "Race Change"] = (rows["race_change"] >= 3).mean()
            by_race = (rows["race_change"] >= 3).groupby(rows["race"]).mean()
            cells |= {(20, "", race, editor): rate for race, rate in by_race.items()}
            cells[20, "", "Disparity", editor] = by_race.max() - by_race.min()
        both = people[people["arm"] == "baseline"].merge(baseline, on=CELL, suffixes=("_people", "_models"))
        assert len(both) == 500
        for editor, rows in both.groupby("editor"):
            for axis, title in TITLES.items():
                models, raters = rows[f"{axis}_models"].mean(), rows[f"{axis}_people"].mean()
                cells[6, "models", editor, title], cells[6, "people", editor, title] = models, raters
                cells[6, "models − people", editor, title] = models - raters
        for column, rows in (("all editors", both), *both.groupby("editor")):
            for axis, title in TITLES.items():
                bias = (rows[f"{axis}_models"] - rows[f"{axis}_people"]).mean()
                cells[6, "models − people, baseline", title, column] = bias
        seen = people[people["arm"] == "baseline"].merge(
            people[people["arm"] == "feature"], on=CELL, suffixes=("", "_feature")
        )
        for column, rows in (("all editors", seen), *seen.groupby("editor")):
            for axis, title in TITLES.items():
                change = (rows[f"{axis}_feature"] - rows[axis]).mean()
                cells[6, "people: feature − baseline", title, column] = change
        for section, column in (*((name, name) for name in FACTORS), ("Model", "editor")):
            for level, count in people[column].value_counts().items():
                cells[18, section, level, "N"], cells[18, section, level, "%"] = count, count / len(people)
        paired = baseline.merge(scores[scores["arm"] == "feature"], on=[*CELL, "race"], suffixes=("", "_feature"))
        for (editor, race), rows in paired.groupby(["editor", "race"]):
            change = {axis: (rows[f"{axis}_feature"] - rows[axis]).mean() for axis in AXES}
            cells[5, editor, race, "Δ Race Change (↓)"] = cells[26, editor, race, "Δ"] = change["race_change"]
            cells[26, editor, race, "Baseline Drift"] = rows["race_change"].mean()
            cells[26, editor, race, "w/ Feature"] = rows["race_change_feature"].mean()
            cells[21, editor, race, "Δ Race"] = change["race_change"]
            cells[21, editor, race, "Δ Gender"] = change["gender_change"]
            cells[21, editor, race, "Δ Skin"] = change["skin_tone"]
        for number, titles in ((5, ["Δ Race Change (↓)"]), (21, ["Δ Race", "Δ Gender", "Δ Skin"])):
            for editor, title in itertools.product(EDITORS, titles):
                by_group = [cells[number, editor, race, title] for race in RACES]
                cells[number, editor, "Largest − smallest", title] = max(by_group) - min(by_group)
        answers = self.roles.set_index([*CELL, "judge"])["role_target"].unstack("judge")
        decided = answers[answers[PRIMARY] == answers[SECONDARY]]
        assert 50 < len(decided) < len(answers)
        # As in the paper, the person whom the stereotype expects is the first of the two.
        for editor, followed in (decided[PRIMARY] == 1).groupby("editor").mean().items():
            cells[7, "two people", editor, "Stereotype Followed"] = followed
            cells[7, "two people", editor, "Stereotype Resisted"] = 1 - followed
        return cells


TITLES = {
    "edit_success": "Edit Success",
    "skin_tone": "Skin Tone Change",
    "race_change": "Race Change",
    "gender_change": "Gender Change",
    "age_change": "Age Change",
}


def _who(request: Request) -> str:
    return "+".join(portrait.id for portrait in request.portraits)


def found(tables: list[PaperTable]) -> Cells:
    """Every number that these tables show."""
    cells: Cells = {}
    for table in tables:
        assert not table.absent, table
        for row in table.rows:
            for column, cell in zip(table.head[1:], row.cells, strict=True):
                match cell:
                    case Number(outcome=outcome):
                        cells[table.number, row.section, row.label, column] = outcome.value
                    case Count(value=number) | Share(value=number):
                        cells[table.number, row.section, row.label, column] = number
                    case _:
                        pass
    return {place: number for place, number in cells.items() if place[3] != "Δ at equal baseline"}


OF_AUDITS = {"diagnosis": (4, 19, 20), "mitigation": (5, 6, 18, 21, 26), "roles": (7,)}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("design"))


@pytest.fixture(scope="module")
def audited(world: World) -> Mapping[str, RecordedRun]:
    world.fill()
    return {name: RecordedRun.open(loaded.folder) for name, loaded in world.audits.items()}


@pytest.fixture(scope="module")
def imported(world: World) -> RecordedRun:
    """Three files, as such results lie about: judges' scores of the baseline, both arms with people, role answers."""
    into, place = world.folder / "imported", world.folder
    told = world.answers().rename(columns={"epoch": "rater"})
    told["rater"] = told["rater"].map("rater {}".format).where(told["judge"] == "people", "")
    told["seed"] = told["editor"].map({FLUX: 42, STEP: 42, QWEN: 0})
    is_role, is_people = told["role_target"].notna(), told["judge"] == "people"
    treated = told["arm"] == "feature"
    told[~is_role & ~is_people & ~treated].drop(columns=["role_target", "rater"]).to_csv(place / "one.csv", index=False)
    told[(is_people | treated)].drop(columns="role_target").to_json(place / "two.json", orient="records")
    told[is_role][[*EDIT, "judge", "seed", "role_target"]].to_csv(place / "three.csv", index=False)
    options = [word for factor in FACTORS for word in ("--group", factor)]
    options += ["--ensemble", "paper", "--primary", PRIMARY, "--race-cut", "3", "--people", "people"]
    for file, more in (("one.csv", options[:-2]), ("two.json", ["--people", "people"]), ("three.csv", [])):
        ran("import", "rows", place / file, "--into", into, *more)
    return RecordedRun.open(into)


def test_the_audits_tables_are_the_truth_in_every_cell(world: World, audited: Mapping[str, RecordedRun]):
    tables = [table for name, numbers in OF_AUDITS.items() for table in _tables(audited[name], numbers)]
    assert found(tables) == pytest.approx(world.truth(), abs=1e-9)
    assert len(world.truth()) > 280


def test_imported_rows_give_the_same_tables(world: World, imported: RecordedRun):
    tables = _tables(imported, tuple(number for numbers in OF_AUDITS.values() for number in numbers))
    assert found(tables) == pytest.approx(world.truth(), abs=1e-9)


def _tables(run: RecordedRun, numbers: tuple[int, ...]) -> list[PaperTable]:
    return make_tables(run, Chosen(numbers=numbers))
