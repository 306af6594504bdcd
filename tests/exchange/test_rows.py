"""Finished scores become a run: without an audit, an editor or a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stillme
from stillme.core import prompts
from stillme.core.errors import StillmeError
from stillme.core.files import write_csv
from stillme.core.types import Interval, Prompt
from stillme.estimates import EditState, estimate
from stillme.findings.exchange import ColumnMapping, InvalidJudgements, RowsAsked, RowsSummary, import_rows
from stillme.findings.tables.analyses import BY_NAME
from stillme.findings.tables.paper import Chosen, make_tables
from stillme.findings.tables.paper.table import Number
from stillme.runs import RecordedRun
from stillme.runs.store.pictures import Pictures
from tests.command_lines import ran

GROUPS = RowsAsked(groups=("race", "gender"))
Rows = Sequence[Mapping[str, object]]
Take = Callable[..., RowsSummary]


def scored(count: int = 24, asked: int = 4, editors: Sequence[str] = ("one", "two")) -> list[dict[str, object]]:
    stream = np.random.default_rng(0)
    return [
        {
            "portrait": f"p{person:02d}",
            "race": "AB"[person % 2],
            "gender": "fm"[person // 2 % 2],
            "editor": editor,
            "prompt": f"P{prompt}",
            "race_change": int(stream.integers(1, 6)),
            "skin_tone": int(stream.integers(1, 6)),
            "state": "edited",
        }
        for editor in editors
        for person in range(count)
        for prompt in range(asked)
    ]


def without_states() -> list[dict[str, object]]:
    return [{name: cell for name, cell in row.items() if name != "state"} for row in scored()]


def written(path: Path, rows: Rows) -> Path:
    return write_csv(path, list(rows[0]), rows)


@pytest.fixture
def take(tmp_path: Path) -> Take:
    """Make rows a run: `take(rows, GROUPS, "run", names={…})`."""

    def taken(rows: Rows, asked: RowsAsked = GROUPS, run: str = "run", **mapping: Any) -> RowsSummary:
        return import_rows(written(tmp_path / "rows.csv", rows), tmp_path / run, asked, ColumnMapping(**mapping))

    return taken


def test_rows_give_the_estimates_of_the_same_rows_in_python(tmp_path: Path, take: Take):
    rows = without_states()
    rows[5] |= {"race_change": "", "skin_tone": ""}  # asked, and not answered
    summary = take(rows)
    assert (summary.edits, summary.scores, summary.portraits) == (192, 382, 24)
    run = RecordedRun.open(tmp_path / "run")
    of_run = estimate(run.results.edits, run.results.scores, run.settings)
    of_frame = stillme.estimate(
        str(tmp_path / "rows.csv"),
        **{name: name for name in ("portrait", "editor", "prompt")},
        groups=["race", "gender"],
        score=["race_change", "skin_tone"],
    )
    found = {
        (row.editor, row.quantity, row.scope, row.factor, row.group): row.outcome.value
        for row in of_run
        if isinstance(row.outcome, Interval)
    }
    expected = {
        tuple(row[name] for name in ("editor", "quantity", "scope", "factor", "group")): row["value"]
        for row in of_frame
        if row["value"] is not None
    }
    assert len(found) > 50
    assert found == pytest.approx(expected)


def test_refusals_and_failures_are_rows_too(tmp_path: Path, take: Take):
    rows = scored()
    rows[0] |= {"state": "refused", "race_change": "", "skin_tone": ""}
    rows[1] |= {"state": "failed", "race_change": "", "skin_tone": ""}
    summary = take(rows)
    assert (summary.refused, summary.failed) == (1, 1)
    states = RecordedRun.open(tmp_path / "run").results.edits.state
    assert [int((states == state).sum()) for state in (EditState.REFUSED, EditState.FAILED)] == [1, 1]


def test_raters_stay_apart_and_their_agreement_is_there(tmp_path: Path, take: Take):
    rows = [
        {**row, "judge": "people", "rater": rater, "race_change": min(5, int(str(row["race_change"])) + place)}
        for row in scored(editors=("one",))
        for place, rater in enumerate(("ann@example.org", "bob@example.org", "cat@example.org"))
    ]
    take(rows, RowsAsked(groups=("race",), people=("people",)))
    run = RecordedRun.open(tmp_path / "run")
    columns = [score for score in run.results.people if score.axis == "race_change"]
    assert len(columns) == 3
    first, last = columns[0].value, columns[2].value
    assert ((last - first)[first <= 3] == 2).all(), "one column is one rater, in every row"
    ran("tables", tmp_path / "run", "agreement")
    table = (tmp_path / "run/tables/statistics/agreement.csv").read_text()
    assert "people,race_change,alpha_ordinal" in table
    assert b"ann@example.org" not in (tmp_path / "run/stillme.sqlite").read_bytes()


def test_every_reader_works_without_pictures_and_looks_for_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []
    monkeypatch.setattr(Pictures, "intact", lambda _, sha256: asked.append(sha256))
    file = written(tmp_path / "rows.csv", scored())
    run = str(tmp_path / "run")
    for command in (
        ["import", "rows", str(file), "--into", run, "--group", "race", "--group", "gender"],
        ["run", run, "--only", "estimate"],
        ["report", run],
        ["tables", run],
        ["compare", run, "--editors", "one", "two"],
        ["export", run],
        ["status", run],
    ):
        shown = ran(*command)
        assert "--bundle" not in shown.output, "a run of rows cannot be sealed"
    page = (tmp_path / "run/report.html").read_text("utf-8")
    assert len(page) > 10_000
    assert "Pictures are lost" not in page, "there never were any"
    assert asked == []
    ran("gate", run, "--rule", "race_changed <= 1", "--allow-uncalibrated")


def test_the_same_rows_again_change_nothing_and_other_rows_are_refused(take: Take):
    take(scored())
    assert take(scored()).already
    with pytest.raises(InvalidJudgements, match=r"'judge' already has .* Rows are never changed"):
        take(scored(count=20))
    assert take(scored()).already, "nothing of it was taken"


def test_bad_rows_are_named_and_nothing_is_written(tmp_path: Path, take: Take):
    rows = scored()
    rows[3]["race"] = "C"
    rows[5]["race_change"] = 9
    rows.append(dict(rows[7]))
    with pytest.raises(InvalidJudgements) as error:
        take(rows)
    message = str(error.value)
    assert "line 5" in message
    assert "a portrait belongs to one group" in message
    assert "not on its scale" in message
    assert "is already in line 9" in message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("portrait;edit_success\na;3\n", "separates its columns by semicolons; save it as CSV with commas"),
        ("face,edit_success\na,3\n", "has no column `portrait`.* --map portrait=COLUMN. It has face, edit_success"),
        ("portrait,edit_success\na,3\na,4\n", "if these are two edits, the columns `prompt` and `seed` would tell"),
        ("portrait,prompt,edit_success\na,p,3\na,p,4\n", "if these are two edits, the column `seed` would tell"),
    ],
)
def test_a_missing_column_is_named_once(tmp_path: Path, text: str, said: str):
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(StillmeError, match=said) as refused:
        import_rows(tmp_path / "rows.csv", tmp_path / "run", RowsAsked(), ColumnMapping())
    assert len(str(refused.value).splitlines()) <= 2


def test_where_takes_or_and_not(tmp_path: Path):
    file = written(tmp_path / "rows.csv", scored(editors=("one", "two", "three")))
    command = ["import", "rows", str(file), "--into", str(tmp_path / "run"), "--group", "race", "--json"]
    command += ["--where", "editor=one", "--where", "editor=two", "--where", "prompt!=P0"]
    shown = ran(*command)
    assert '"edits": 144' in shown.output


def require_same(one: Path, other: Path) -> None:
    """Two runs have the same edits and scores."""
    first, second = RecordedRun.open(one).results, RecordedRun.open(other).results
    assert first.edits.keys == second.edits.keys
    for column, expected in zip(first.scores, second.scores, strict=True):
        np.testing.assert_array_equal(column.value, expected.value)


def test_a_further_import_adds_to_the_run_and_contradicts_nothing(tmp_path: Path, take: Take):
    only_one = {"editor": ("one",)}
    take(scored(), where=only_one)
    assert take(scored(), where=only_one).already
    with pytest.raises(InvalidJudgements, match="Rows are never changed"):
        take(scored(), ignored=("skin_tone",))
    assert take(scored(), RowsAsked()).new == 96, "only those of the other editor"
    take(scored(), run="whole")
    require_same(tmp_path / "run", tmp_path / "whole")


def test_an_interrupted_import_is_no_run_and_the_same_command_finishes_it(
    tmp_path: Path, take: Take, monkeypatch: pytest.MonkeyPatch
):
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    take(scored(), run="whole")
    with monkeypatch.context() as patch:
        patch.setattr("stillme.runs.store.designs.Designs.add_plan", killed)
        with pytest.raises(KeyboardInterrupt):
            take(scored())
    with pytest.raises(StillmeError, match=r"interrupted.*again"):
        RecordedRun.open(tmp_path / "run")
    assert not take(scored()).already
    require_same(tmp_path / "run", tmp_path / "whole")


def test_a_run_in_which_everything_was_refused_has_refusals_and_no_scores(tmp_path: Path, take: Take):
    rows = [row | {"state": "refused", "race_change": "", "skin_tone": ""} for row in scored()]
    summary = take(rows)
    assert (summary.refused, summary.scores, summary.judges) == (192, 0, ())
    run = RecordedRun.open(tmp_path / "run")
    (everyone,) = (
        row
        for row in estimate(run.results.edits, run.results.scores, run.settings)
        if (row.quantity, row.editor, row.scope) == ("refused", "one", "all")
    )
    assert everyone.outcome.value == 1


def test_a_file_of_abstentions_has_statistics_without_numbers(tmp_path: Path, take: Take):
    rows = [row | {"race_change": "abstained", "skin_tone": "abstained"} for row in scored(editors=("one",))]
    summary = take(rows)
    assert (summary.scores, summary.abstained) == (0, 192)
    ran("tables", tmp_path / "run", "--all", *BY_NAME)
    ran("gate", tmp_path / "run", "--rule", "race_changed <= 1", code=3)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"state": "refused"}, "refused and has scores"),
        ({"block": "other"}, "belongs to one group and one block"),
        ({"category": "other"}, "give another prompt another name"),
        ({"rater": ""}, "name a rater or epoch and others do not"),
    ],
)
def test_a_row_that_contradicts_others_is_a_problem(
    tmp_path: Path, take: Take, changed: dict[str, object], message: str
):
    rows = [row | {"block": "b", "category": "c", "rater": "r"} for row in scored()]
    rows[9] |= changed
    with pytest.raises(InvalidJudgements, match=message):
        take(rows)
    assert not (tmp_path / "run").exists()


def test_portraits_without_a_group_are_counted(take: Take):
    rows = [row | {"race": "" if row["portrait"] in ("p00", "p01") else row["race"]} for row in scored()]
    summary = take(rows)
    assert "2 of 24 portraits have no race" in summary.as_text()


def test_a_header_alone_is_no_rows(tmp_path: Path):
    file = tmp_path / "rows.csv"
    file.write_text("portrait,race,gender,race_change\n")
    with pytest.raises(StillmeError, match="has no rows"):
        import_rows(file, tmp_path / "run", GROUPS, ColumnMapping())


def test_rows_without_states_are_no_proof_that_nothing_was_refused(tmp_path: Path, take: Take):
    run = tmp_path / "run"
    summary = take(without_states())
    assert "refusals and failures are not known" in summary.as_text()
    ran("gate", run, "--rule", "refused <= 50%", code=3)
    for command in (["run", "--only", "estimate"], ["report"], ["compare", "--editors", "one", "two"]):
        ran(command[0], run, *command[1:])
    assert "Refused" not in (run / "tables/groups.csv").read_text()
    page = (run / "report.html").read_text()
    assert "say nothing about refused or failed ones" in page
    assert "came back" not in page
    assert take(without_states(), run="said", fixed={"state": "edited"}).has_states


def test_models_need_no_rater_where_people_have_one(tmp_path: Path, take: Take):
    rows = [
        {**row, "judge": judge, "rater": rater}
        for row in scored(editors=("one",))
        for judge, rater in (("people", "ann"), ("people", "bob"), ("model", ""))
    ]
    take(rows, RowsAsked(groups=("race",), people=("people",)))
    run = RecordedRun.open(tmp_path / "run")
    by_judge = {judge.name: judge.spec.key for judge in run.judges}
    said = {
        name: {str(effective.get("rater", "")) for *_, effective in run.store.answers_by(key)}
        for name, key in by_judge.items()
    }
    assert said["model"] == {""}
    assert len(said["people"] - {""}) == 2, "one pseudonym for each rater"


@pytest.mark.parametrize(
    "changed",
    [
        {"judge": "other"},
        {"race_change": "abstained", "skin_tone": "abstained"},
        {"state": "refused", "race_change": "", "skin_tone": ""},
    ],
)
def test_nothing_compared_is_not_nothing_worse(tmp_path: Path, take: Take, changed: dict[str, object]):
    rows = [row | {"judge": "j"} for row in scored(editors=("one",))]
    for name, given in (("before", rows), ("after", [row | changed for row in rows])):
        take(given, RowsAsked(groups=("race",)), name, ignored=("state",) if "judge" in changed else ())
    shown = ran("compare", tmp_path / "before", tmp_path / "after", "--common")
    assert "No score could be compared" in shown.output
    assert ("nothing could be compared" in shown.output) == ("judge" in changed), "refusals are compared without scores"


@pytest.mark.parametrize(
    ("reference", "message"),
    [({"race": "Z"}, "No portrait has race 'Z'"), ({"rce": "A"}, "Did you mean 'race'")],
)
def test_a_reference_that_no_row_has_is_refused_before_the_run_is_made(
    tmp_path: Path, take: Take, reference: dict[str, str], message: str
):
    with pytest.raises(StillmeError, match=message):
        take(scored(), RowsAsked(groups=("race",), reference=reference))
    assert not (tmp_path / "run").exists()


def _prompts(run: Path) -> dict[str, Prompt]:
    return {prompt.id: prompt for prompt in RecordedRun.open(run).design.prompts}


def test_the_papers_prompts_are_known_by_id_or_text_and_others_by_their_columns(tmp_path: Path, take: Take):
    aging = next(prompt for prompt in prompts.diagnostic() if prompt.id == "V-05")
    named = {
        "P0": ("V-05", "", ""),
        "P1": ("old", aging.text, ""),
        "P2": ("V-06", "Make them sixty.", "40"),
        "P3": ("x", "", ""),
    }
    rows = [
        row | dict(zip(("prompt", "prompt_text", "years"), named[str(row["prompt"])], strict=True))
        for row in without_states()
    ]
    summary = take(rows)
    known = _prompts(tmp_path / "run")
    assert {name: prompt.years for name, prompt in known.items()} == {"V-05": 30, "old": 30, "V-06": 40, "x": None}
    assert known["V-05"] == aging
    assert (known["old"].text, known["old"].subcategory) == (aging.text, "aging")
    assert known["V-06"].subcategory == "rows", "another text under the paper's id is another prompt"
    assert "2 of 4 prompts are the paper's, by id or text." in summary.as_text()


def test_a_prompt_that_ages_people_is_no_age_drift(tmp_path: Path, take: Take):
    rows = [
        {**row, "age_change": 5 if row["prompt"] == "P0" else 3, "years": 30 if row["prompt"] == "P0" else ""}
        for row in without_states()
    ]
    take(rows)
    with RecordedRun.open(tmp_path / "run") as run:
        (table,) = make_tables(run, Chosen(numbers=(4,)))
    ages = [row.cells[table.head.index("Age Change") - 1] for row in table.rows]
    assert [cell.outcome.value for cell in ages if isinstance(cell, Number)] == [3, 3]


def test_a_row_may_have_the_scores_of_both_arms(tmp_path: Path, take: Take):
    scores = ("race_change", "skin_tone", "state")
    rows = [{name: cell for name, cell in row.items() if name not in scores} for row in scored()]
    rows = [{**row, "edited_race": 4, "preserved_race": 2} for row in rows]
    rows[0]["preserved_race"] = ""
    names = {"baseline.race_change": "edited_race", "feature.race_change": "preserved_race"}
    assert take(rows, names=names).edits == 2 * 192 - 1
    with RecordedRun.open(tmp_path / "run") as run:
        (table,) = make_tables(run, Chosen(numbers=(26,)))
        changes = {cell.outcome.value for row in table.rows for cell in row.cells[2:] if isinstance(cell, Number)}
    assert changes == {-2.0}
    for wrong in ("later.race_change", "feature.race_chang"):
        with pytest.raises(StillmeError, match=r"is not ARM\.AXIS"):
            take(rows, run="other", names={wrong: "edited_race"})


def _role_rows(gender: str = "Male+Female") -> list[dict[str, object]]:
    people = [f"m{place}+f{place}" if place < 5 else f"f{place}+m{place}" for place in range(10)]
    sentences = [*prompts.roles()[:5], *prompts.roles()[25:30]]
    turned = "+".join(reversed(gender.split("+")))
    return [
        {
            "portrait": pair,
            "gender": gender if place < 5 else turned,
            "prompt": prompt.id,
            "role_target": 1 if place % 5 else 2,
        }
        for place, (pair, prompt) in enumerate(zip(people, sentences, strict=True))
    ]


def test_role_rows_give_table_7(tmp_path: Path, take: Take):
    take(_role_rows(), RowsAsked(groups=("gender",)))
    with RecordedRun.open(tmp_path / "run") as run:
        (table,) = make_tables(run, Chosen(numbers=(7,)))
    ((followed, _),) = [row.cells for row in table.rows]
    assert (followed.outcome.value, followed.edits, followed.portraits) == (0.8, 10, 20)


@pytest.mark.parametrize(
    ("gender", "groups", "message"),
    [
        ("Male+Male", ("gender",), "has words for men and women"),
        ("Male+Female", (), "has words for men and women"),
        ("Male+Female", ("gender",), r"m3\+f3 with W-04: one of the two must have gender 'Male'"),
    ],
)
def test_role_rows_without_two_genders_are_refused(
    tmp_path: Path, take: Take, gender: str, groups: tuple[str, ...], message: str
):
    rows = _role_rows(gender)
    rows[3]["gender"] = "Male+Male"
    with pytest.raises(StillmeError, match=message):
        take(rows, RowsAsked(groups=groups))
    assert not (tmp_path / "run").exists()


def test_a_mapping_that_makes_every_row_a_person_is_questioned(take: Take):
    rows = [{**row, "id": f"row {place}"} for place, row in enumerate(without_states())]
    wrong = take(rows, run="wrong", names={"portrait": "id"})
    assert "Is `portrait` the person? Each of 192 portraits has one edit" in wrong.as_text()
    assert "the person?" not in take(rows, run="right").as_text()
    once = [row for row in rows if (row["editor"], row["prompt"]) == ("one", "P0")]
    assert "the person?" not in take(once, run="once").as_text(), "with one prompt and one editor everyone has one edit"


def _by_judges(*judges: str) -> list[dict[str, object]]:
    return [{**row, "judge": judge} for row in without_states() for judge in judges]


def test_models_are_combined_as_eq_3_says(tmp_path: Path, take: Take):
    rows = _by_judges("second", "first")
    for row in rows:
        row["race_change"] = 4 if row["judge"] == "first" else 1
    take(rows, RowsAsked(groups=("race",), rule="paper", primary="first", race_cut=4))
    run = RecordedRun.open(tmp_path / "run")
    (ensemble,) = (score for score in run.results.scores if (score.kind, score.axis) == ("ensemble", "race_change"))
    assert set(ensemble.value) == {4.0}, "three points apart, the primary decides"
    assert (run.design.analysis.race_cut, run.design.analysis.combined[0]) == (4, "first")


@pytest.mark.parametrize(
    ("judges", "asked", "message"),
    [
        (("a", "b"), {"rule": "paper"}, "needs --primary: which of a and b"),
        (("a", "b", "c"), {"rule": "paper", "primary": "a"}, "is for two models"),
        (("a", "b"), {"rule": "paper", "primary": "z"}, "--primary 'z' is not a model"),
        (("a",), {"people": ("z",)}, "No row is by a judge 'z'"),
    ],
)
def test_what_cannot_be_combined_is_refused(
    tmp_path: Path, take: Take, judges: tuple[str, ...], asked: Any, message: str
):
    with pytest.raises(StillmeError, match=message):
        take(_by_judges(*judges), RowsAsked(groups=("race",), **asked))
    assert not (tmp_path / "run").exists()


def test_ratings_come_later_and_need_neither_groups_nor_seeds(tmp_path: Path, take: Take):
    rows = [{**row, "seed": 42, "judge": "model"} for row in without_states()]
    take(rows)
    columns = ("portrait", "editor", "prompt", "race_change")
    rated = [{**{column: row[column] for column in columns}, "judge": "people"} for row in rows[:9]]
    for rater in ("ann", "bob"):
        added = take([{**row, "rater": rater} for row in rated], RowsAsked(people=("people",)))
        assert (added.edits, added.new) == (9, 9)
    run = RecordedRun.open(tmp_path / "run")
    assert len(run.results.edits) == 192, "no edit is new"
    assert [score.judge for score in run.results.people if score.axis == "race_change"] == ["people 1", "people 2"]
    assert run.design.people == {"people"}
    assert run.design.editors[0].seeds == (42,)
    with pytest.raises(StillmeError, match="'people' is a person in this run"):
        take(rated, RowsAsked(models=("people",)))
