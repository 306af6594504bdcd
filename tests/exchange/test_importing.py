"""Scores made elsewhere: matched, checked whole, appended once."""

from __future__ import annotations

import json
import re
import sqlite3
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from stillme.api.pipeline import run_stages
from stillme.audit import NamedJudge
from stillme.core.errors import StillmeError
from stillme.core.files import write_csv
from stillme.estimates.rows import Scores
from stillme.findings.exchange import ColumnMapping, InvalidJudgements, RowsAsked, RowsSummary, import_rows
from stillme.findings.exchange.audit_run import judge_table
from stillme.judges.given import Imported, ImportedParameters
from stillme.runs import RecordedRun
from tests.command_lines import invoke, ran

Write = Callable[..., Path]
Rows = Iterable[Mapping[str, object]]

PEOPLE = """use = "scripted"
[[judges]]
use = "imported"
name = "people"
epochs = {epochs}
[judges.parameters]
source = "a study"
kind = "person"
axes = ["skin_tone", "edit_success"]
"""


def written(file: Path, rows: Rows) -> Path:
    listed = [dict(row) for row in rows]
    columns = list(dict.fromkeys(name for row in listed for name in row))
    match file.suffix:
        case ".csv":
            write_csv(file, columns, listed)
        case ".json":
            file.write_text(json.dumps(listed))
        case ".jsonl":
            file.write_text("".join(json.dumps(row) + "\n" for row in listed))
        case _:
            pa = pytest.importorskip("pyarrow")
            import pyarrow.parquet as parquet

            parquet.write_table(pa.Table.from_pylist(listed), file)
    return file


def edited(folder: Path) -> Path:
    run_stages(folder, ("edit",))
    return folder


def assessments(folder: Path) -> int:
    return sqlite3.connect(folder / "stillme.sqlite").execute("SELECT COUNT(*) FROM assessment").fetchone()[0]


def scores(folder: Path, axis: str, judge: str = "people") -> Scores:
    columns = RecordedRun.open(folder).results.scores
    return next(column for column in columns if (column.judge, column.axis) == (judge, axis))


def wide(score: Callable[[int], float] = lambda index: 1 + index % 5) -> list[dict[str, object]]:
    return [
        {"portrait": f"p{place // 2}", "prompt": f"O-0{place % 2 + 1}", "skin_tone": score(place), "edit_success": 4}
        for place in range(12)
    ]


def take(folder: Path, rows: Rows, suffix: str = ".csv", **mapping: Any) -> RowsSummary:
    file = written(folder / f"scores{suffix}", rows)
    fixed = {"judge": "people", **mapping.pop("fixed", {})}
    return import_rows(file, folder, RowsAsked(), ColumnMapping(fixed=fixed, **mapping))


@pytest.fixture
def run(write_audit: Write) -> Path:
    return edited(write_audit(judge=PEOPLE.format(epochs=1)))


@pytest.mark.parametrize("suffix", [".csv", ".json", ".jsonl", ".parquet"])
def test_scores_of_every_format_become_a_judge_with_estimates(run: Path, suffix: str):
    imported = take(run, wide(), suffix)
    assert (imported.new, imported.edits, imported.scores) == (12, 12, 24)
    assert list(scores(run, "skin_tone").value) == [1 + place % 5 for place in range(12)]
    summary = run_stages(run, ("judge", "estimate", "report"))
    assert [tally.name for tally in summary.tallies] == ["judge scripted"], "an imported judge is asked nothing"
    assert summary.totals.to_retry == 0
    table = (run / "tables" / "estimates.csv").read_text()
    assert "noop,baseline,people,skin_lightened,group" in table


def test_every_bad_row_is_reported_with_its_line_and_nothing_is_imported(run: Path):
    rows = wide()
    rows[1]["portrait"] = "p9"
    rows[3]["skin_tone"] = 6
    rows[4]["skin_tone"] = "dark"
    rows[6]["prompt"] = "O-1"
    rows.append(dict(rows[0]))
    with pytest.raises(InvalidJudgements) as caught:
        take(run, rows)
    assert "; nothing was imported:" in str(caught.value)
    told = {problem.place: problem.message for problem in caught.value.problems}
    assert told.keys() == {"line 3", "line 5", "line 6", "line 8", "line 14"}
    assert told["line 3"].startswith("no portrait 'p9' in this audit.")
    assert told["line 5"] == "skin_tone = 6 is not on its scale, 1 to 5"
    assert told["line 6"] == "skin_tone = 'dark' is not a number; write one, or abstained"
    assert "Did you mean 'O-01'?" in told["line 8"]
    assert "is already in line 2" in told["line 14"]
    assert assessments(run) == 0


@pytest.mark.parametrize("column", ["edit_sucess", "Edit Success", "edit-success"])
def test_a_column_that_may_be_a_misspelt_axis_is_refused_before_anything_is_written(run: Path, column: str):
    rows = [{column if name == "edit_success" else name: cell for name, cell in row.items()} for row in wide()]
    with pytest.raises(InvalidJudgements, match=rf"column '{column}': .* Did you mean 'edit_success'\?") as caught:
        take(run, rows)
    assert f"--map edit_success='{column}'" in str(caught.value)
    assert assessments(run) == 0
    assert take(run, rows, names={"edit_success": column}).scores == 24


def test_other_columns_are_listed_and_a_similar_name_can_be_ignored(run: Path):
    rows = [{**row, "comment": "fine", "rates": 1} for row in wide()]
    with pytest.raises(InvalidJudgements, match=r"Did you mean 'rater'\?"):
        take(run, rows)
    imported = take(run, rows, ignored=("rates",))
    assert imported.unread_columns == ("comment",)
    assert "Columns that were not read: comment." in imported.as_text()


def test_a_declared_axis_without_scores_is_refused_before_anything_is_written(run: Path):
    absent = [{name: cell for name, cell in row.items() if name != "edit_success"} for row in wide()]
    for rows in (absent, [{**row, "edit_success": ""} for row in wide()]):
        with pytest.raises(InvalidJudgements, match="'people' is declared for edit_success, and no row has a score"):
            take(run, rows)
        assert assessments(run) == 0


def test_at_most_ten_problems_are_shown_and_all_are_counted(run: Path):
    with pytest.raises(InvalidJudgements) as caught:
        take(run, [{**row, "skin_tone": 9} for row in wide()])
    told = str(caught.value)
    assert "has 12 problems; nothing was imported" in told
    assert told.count("is not on its scale") == 10
    assert told.endswith("and 2 more")


def test_what_is_kept_is_never_changed_by_a_corrected_file(run: Path):
    take(run, wide())
    again = take(run, reversed(wide()))
    assert (again.new, again.edits, assessments(run)) == (0, 12, 12), "the same again does nothing"
    corrected = wide()
    corrected[2]["skin_tone"] = 5
    with pytest.raises(InvalidJudgements, match=r"line 4: 'people' already has .* another judge's name"):
        take(run, corrected)
    assert scores(run, "skin_tone").value[2] == 3


def test_several_raters_are_averaged_and_their_names_are_not_kept(write_audit: Write):
    folder = edited(write_audit(judge=PEOPLE.format(epochs=3)))
    rows = [
        {**row, "rater": f"5f0c{rater}participant", "skin_tone": score}
        for row in wide()
        for rater, score in enumerate((2, 3, 4))
    ]
    imported = take(folder, rows)
    assert (imported.edits, imported.new) == (12, 36)
    assert set(scores(folder, "skin_tone").value) == {3.0}
    assert b"participant" not in (folder / "stillme.sqlite").read_bytes()


def test_more_raters_than_the_audit_expects_is_an_error_that_says_what_to_write(run: Path):
    rows = [{**row, "rater": rater} for row in wide()[:1] for rater in "ab"]
    with pytest.raises(InvalidJudgements, match=r"epochs = 1 in audit.toml, raise it"):
        take(run, rows)


def test_columns_and_axes_go_by_their_own_names(run: Path):
    rows = [
        {"image": row["portrait"], "task": row["prompt"], "question": question, "score": 2, "who": who}
        for row in wide()
        for question in ("Skin", "Success")
        for who in ("them", "others")
    ]
    names = {"portrait": "image", "prompt": "task", "axis": "question", "skin_tone": "Skin", "edit_success": "Success"}
    imported = take(run, rows, names=names, where={"who": "them"})
    assert (imported.new, imported.scores, imported.left_out) == (12, 24, 24)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"names": {"portait": "x"}}, "Did you mean 'portrait'"),
        ({"names": {"portrait": "promt"}}, "has no column 'promt'. Did you mean 'prompt'"),
        ({"where": {"rater": "x"}}, "has no column 'rater'"),
        ({"where": {"portrait": "nobody"}}, "has no rows that match --where"),
    ],
)
def test_a_wrong_choice_of_columns_is_one_sentence(run: Path, choice: dict[str, dict[str, str]], message: str):
    with pytest.raises(StillmeError, match=message):
        take(run, wide(), **choice)


def test_an_abstention_stays_one_and_an_empty_cell_is_not_judged(run: Path):
    rows = wide()
    rows[0]["skin_tone"] = "abstained"
    rows[1]["skin_tone"] = ""
    take(run, rows)
    assert list(scores(run, "skin_tone").state[:3]) == [2, 0, 1]


def test_the_runs_own_export_imports_back(write_audit: Write):
    folder = edited(write_audit(judge=PEOPLE.format(epochs=1).replace(', "edit_success"', "")))
    run_stages(folder, ("judge",))
    ran("export", folder)
    where = {"judge": ("scripted",), "axis": ("skin_tone",)}
    mapping = ColumnMapping(where=where, ignored=("judge",), fixed={"judge": "people"})
    imported = import_rows(folder / "export" / "judgements.csv", folder, RowsAsked(), mapping)
    assert imported.new == 12
    assert set(scores(folder, "skin_tone").value) == {3.0}


def test_several_editors_seeds_and_arms_must_be_named(write_audit: Write):
    two = 'use = "noop"\nseeds = [1, 2]\n[[editors]]\nuse = "moody"'
    folder = edited(write_audit(editor=two, judge=PEOPLE.format(epochs=1)))
    row = wide()[0]
    for extra, message in (
        ({}, "no editor. Known: noop, moody"),
        ({"editor": "nop"}, "Did you mean 'noop'"),
        ({"editor": "noop"}, "no seed; noop has 1, 2"),
        ({"editor": "noop", "seed": 3}, "no seed '3'; noop has 1, 2"),
        ({"editor": "noop", "seed": 1, "arm": "noop"}, "no arm 'noop' in this audit; it has baseline"),
    ):
        with pytest.raises(InvalidJudgements, match=message):
            take(folder, [{**row, **extra}])
    assert take(folder, [{**row, "seed": 2}], fixed={"editor": "noop", "arm": "baseline"}).new == 1


def test_a_refused_edit_cannot_be_rated(write_audit: Write):
    folder = edited(write_audit(editor='use = "moody"', judge=PEOPLE.format(epochs=1)))
    with pytest.raises(InvalidJudgements, match="this edit was refused, so there is no picture to rate"):
        take(folder, wide())


def test_people_are_set_against_the_ensemble_and_not_averaged_into_it(write_audit: Write):
    one = 'use = "scripted"\nname = "one"\nparameters = { otherwise = "fail" }\n[[judges]]\nname = "two"\n'
    folder = edited(write_audit(judge=one + PEOPLE.format(epochs=1), extra='[ensemble]\nrule = "paper"'))
    run_stages(folder, ("judge",))
    take(folder, wide(lambda _: 5))
    assert set(scores(folder, "skin_tone", "ensemble (paper)").value) == {3.0}


def test_the_command_adds_the_judge_to_the_audit(write_audit: Write):
    folder = edited(write_audit())
    file = written(folder / "scores.csv", wide())
    before = (folder / "audit.toml").read_text()
    arguments = ["import", "rows", file, "--into", folder, "--set", 'judge=the "lab"']
    told = invoke(*arguments)
    assert isinstance(told.exception, StillmeError)
    assert 'use = "imported"\nname = "the \\"lab\\""' in str(told.exception)
    assert (folder / "audit.toml").read_text() == before
    shown = ran(*arguments, "--model", 'the "lab"', "--json")
    assert json.loads(shown.stdout)["declared"] == ['the "lab"']
    assert (folder / "audit.toml").read_text().startswith(before.rstrip("\n"))
    assert list(scores(folder, "skin_tone", 'the "lab"').value[:3]) == [1, 2, 3]


def test_the_lines_of_the_page_are_those_that_the_command_adds():
    page = (Path(__file__).parents[2] / "docs" / "import.md").read_text()
    (block,) = re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    parameters = ImportedParameters(source="raters", kind="person", axes=("edit_success", "skin_tone"))
    assert tomllib.loads(block) == tomllib.loads(judge_table("raters", parameters, 3))


def test_a_judge_that_is_asked_takes_no_imports(run: Path):
    file = written(run / "scores.csv", wide())
    with pytest.raises(StillmeError, match="is asked by stillme itself"):
        import_rows(file, run, RowsAsked(), ColumnMapping(fixed={"judge": "scripted"}))


def test_the_order_of_axes_makes_no_other_judge():
    axes = ("skin_tone", "race_change")
    one, other = (Imported(ImportedParameters(source="x", axes=order)) for order in (axes, axes[::-1]))
    assert one.spec.key == other.spec.key
    assert NamedJudge(name="x", judge=one, epochs=3).record().asked == 3
