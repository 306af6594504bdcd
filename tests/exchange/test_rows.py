"""Finished scores become a run: without an audit, an editor or a picture."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import stillme
from stillme.cli import cli
from stillme.errors import StillmeError
from stillme.estimates import EditState, estimate
from stillme.exchange import ColumnMapping, InvalidJudgements, RowsAsked, import_rows
from stillme.results import Run
from stillme.types import Interval

GROUPS = RowsAsked(groups=("race", "gender"))


def scored(count: int = 24, prompts: int = 4, editors: Sequence[str] = ("one", "two")) -> list[dict[str, object]]:
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
        for prompt in range(prompts)
    ]


def written(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_rows_give_the_estimates_of_the_same_rows_in_python(tmp_path: Path):
    file = written(tmp_path / "rows.csv", scored())
    summary = import_rows(file, tmp_path / "run", GROUPS, ColumnMapping())
    assert (summary.edits, summary.scores, summary.portraits) == (192, 384, 24)
    run = Run.open(tmp_path / "run")
    of_run = estimate(run.results.edits, run.results.scores, run.settings)
    of_frame = stillme.estimate(
        str(file),
        portrait="portrait",
        groups=["race", "gender"],
        score=["race_change", "skin_tone"],
        editor="editor",
        prompt="prompt",
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


def test_refusals_and_failures_are_rows_too(tmp_path: Path):
    rows = scored()
    rows[0] |= {"state": "refused", "race_change": "", "skin_tone": ""}
    rows[1] |= {"state": "failed", "race_change": "", "skin_tone": ""}
    summary = import_rows(written(tmp_path / "rows.csv", rows), tmp_path / "run", GROUPS, ColumnMapping())
    assert (summary.refused, summary.failed) == (1, 1)
    states = Run.open(tmp_path / "run").results.edits.state
    assert [int((states == state).sum()) for state in (EditState.REFUSED, EditState.FAILED)] == [1, 1]


def test_raters_stay_apart_and_their_agreement_is_there(tmp_path: Path):
    rows = [
        {**row, "judge": "people", "rater": rater, "race_change": min(5, int(str(row["race_change"])) + place)}
        for row in scored(editors=("one",))
        for place, rater in enumerate(("ann@example.org", "bob@example.org", "cat@example.org"))
    ]
    file = written(tmp_path / "rows.csv", rows)
    import_rows(file, tmp_path / "run", RowsAsked(groups=("race",), people=("people",)), ColumnMapping())
    run = Run.open(tmp_path / "run")
    columns = [score for score in run.results.people if score.axis == "race_change"]
    assert len(columns) == 3
    first, last = columns[0].value, columns[2].value
    assert ((last - first)[first <= 3] == 2).all(), "one column is one rater, in every row"
    shown = CliRunner().invoke(
        cli, ["statistics", str(tmp_path / "run"), "--only", "agreement"], catch_exceptions=False
    )
    assert shown.exit_code == 0, shown.output
    table = (tmp_path / "run/tables/statistics/agreement.csv").read_text()
    assert "people,race_change,alpha_ordinal" in table
    assert b"ann@example.org" not in (tmp_path / "run/stillme.sqlite").read_bytes()


def test_every_reader_works_without_pictures(tmp_path: Path):
    file = written(tmp_path / "rows.csv", scored())
    run = str(tmp_path / "run")
    for command in (
        ["import", "rows", str(file), "--into", run, "--group", "race", "--group", "gender"],
        ["estimate", run],
        ["report", run],
        ["tables", run],
        ["compare", run, "--editors", "one", "two"],
        ["export", run],
        ["status", run],
    ):
        shown = CliRunner().invoke(cli, command)
        assert shown.exit_code == 0, (command, shown.output)
    assert (tmp_path / "run/report.html").stat().st_size > 10_000
    gate = CliRunner().invoke(cli, ["gate", run, "--max", "race_changed <= 1", "--accept-uncalibrated"])
    assert gate.exit_code == 0, gate.output


def test_the_same_rows_again_change_nothing_and_other_rows_are_refused(tmp_path: Path):
    file = written(tmp_path / "rows.csv", scored())
    import_rows(file, tmp_path / "run", GROUPS, ColumnMapping())
    assert import_rows(file, tmp_path / "run", GROUPS, ColumnMapping()).already
    other = written(tmp_path / "other.csv", scored(count=20))
    with pytest.raises(StillmeError, match="holds another run"):
        import_rows(other, tmp_path / "run", GROUPS, ColumnMapping())


def test_bad_rows_are_named_and_nothing_is_written(tmp_path: Path):
    rows = scored()
    rows[3]["race"] = "C"
    rows[5]["race_change"] = 9
    rows.append(dict(rows[7]))
    with pytest.raises(InvalidJudgements) as error:
        import_rows(written(tmp_path / "rows.csv", rows), tmp_path / "run", GROUPS, ColumnMapping())
    message = str(error.value)
    assert "line 5" in message
    assert "a portrait belongs to one group" in message
    assert "not on its scale" in message
    assert "in an earlier row" in message
    assert not (tmp_path / "run").exists()


def test_where_takes_or_and_not(tmp_path: Path):
    file = written(tmp_path / "rows.csv", scored(editors=("one", "two", "three")))
    command = ["import", "rows", str(file), "--into", str(tmp_path / "run"), "--group", "race", "--json"]
    command += ["--where", "editor=one", "--where", "editor=two", "--where", "prompt!=P0"]
    shown = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert shown.exit_code == 0, shown.output
    assert '"edits": 144' in shown.output
