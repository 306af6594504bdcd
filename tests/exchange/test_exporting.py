"""Rows for other programs."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

import stillme
from stillme.api.pipeline import run_stages
from stillme.core.errors import MissingExtra
from stillme.core.types import Assessment, Rating, Refused, Request
from stillme.findings.exchange import export_run
from stillme.findings.exchange import rows as writers
from stillme.runs import RecordedRun
from stillme.runs.store import Store
from stillme.runs.store.exported import EDITS, FEATURES, JUDGEMENTS, codebook, rows_of, tables_in, with_names
from tests import runs
from tests.records import assessment_row, edit_row, request
from tests.runs import fill, luck, people, scores

Make = Callable[..., Path]


def answer(_editor: str, asked: Request) -> dict[str, Rating] | Refused:
    return Refused(message="=HYPERLINK(evil)") if luck(asked) < 0.2 else scores()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return fill(runs.write_audit(tmp_path / "run", people(tmp_path / "people", per_group=4)), answer)


def test_every_format_says_the_same(run: Path, tmp_path: Path):
    for kind in ("csv", "jsonl", "parquet"):
        export_run(RecordedRun.open(run), kind, tmp_path / "out")
    for table in (with_names(EDITS), with_names(JUDGEMENTS)):
        file = tmp_path / "out" / table.name
        rows = parquet.read_table(file.with_suffix(".parquet")).to_pylist()
        lines = [json.loads(line) for line in file.with_suffix(".jsonl").read_text().splitlines()]
        with file.with_suffix(".csv").open(newline="") as stream:
            cells = list(csv.DictReader(stream))
        packed = {column.name for column in table.columns if column.kind == "json"}
        assert rows
        for row, line, cell in zip(rows, lines, cells, strict=True):
            assert {n: json.loads(value) if n in packed and value else value for n, value in row.items()} == line
            told = {name: value.removeprefix("'") for name, value in cell.items()}
            assert {name: "" if value is None else str(value) for name, value in row.items()} == told


def test_two_editors_of_one_plugin_are_told_apart_by_their_names(tmp_path: Path, write_audit: Make):
    named = '[{0}]\nuse = "{1}"\nname = "{2}"\nparameters = {{ {3} }}'.format
    folder = write_audit(
        'use = "flaky:0"\nname = "mild"\n' + named("[editors]", "flaky:0", "strong", "cost = 0.5"),
        'use = "scripted"\n' + named("[judges]", "scripted", "stern", "scores = { race_change = 4 }"),
    )
    run_stages(folder, ("edit", "judge"))
    with stillme.open(folder) as run:
        edits, judgements, *_ = export_run(run, "jsonl", tmp_path / "out")
        names = {row["judge_name"] for row in run.judgements}
    rows = [json.loads(line) for line in edits.read_text().splitlines()]
    assert {(row["editor"], row["editor_name"]) for row in rows} == {("flaky", "mild"), ("flaky", "strong")}
    judged = [json.loads(line) for line in judgements.read_text().splitlines()]
    assert {row["judge_name"] for row in judged} == names == {"scripted", "stern"}
    assert {row["score"] for row in judged if row["judge_name"] == "stern"} == {4.0}


def test_the_codebook_explains_every_column(run: Path, tmp_path: Path):
    written = export_run(RecordedRun.open(run), "jsonl", tmp_path / "out")
    text = written[-1].read_text()
    for file in written[:-1]:
        for column in json.loads(file.read_text().splitlines()[0]):
            assert f"| {column} | " in text
    schema = parquet.ParquetFile(export_run(RecordedRun.open(run), "parquet", tmp_path / "out")[0]).schema_arrow
    assert all(field.metadata[b"description"] for field in schema)
    assert "labels, not truth" in codebook()


def test_a_table_without_rows_still_has_its_columns(tmp_path: Path):
    run = fill(runs.write_audit(tmp_path / "run", people(tmp_path / "people", per_group=2)), lambda *_: None)
    for kind in ("csv", "parquet"):
        export_run(RecordedRun.open(run), kind, tmp_path / "out")
    heads = (tmp_path / "out" / "judgements.csv").read_text().strip().split(",")
    assert heads == [column.name for column in with_names(JUDGEMENTS).columns]
    assert parquet.read_table(tmp_path / "out" / "edits.parquet").num_rows == 0


def test_parquet_is_written_a_group_at_a_time(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(writers, "_GROUP", 10)
    export_run(RecordedRun.open(run), "parquet", tmp_path / "out")
    file = parquet.ParquetFile(tmp_path / "out" / "edits.parquet")
    assert file.metadata.num_rows == 32
    assert file.metadata.num_row_groups == 4


def test_parquet_without_pyarrow_says_what_to_install(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"stillme\[parquet\]"):
        export_run(RecordedRun.open(run), "parquet", tmp_path / "out")
    assert not list((tmp_path / "out").glob("*"))


def test_what_a_spreadsheet_would_run_is_marked_as_text(run: Path, tmp_path: Path):
    export_run(RecordedRun.open(run), "csv", tmp_path / "out")
    text = (tmp_path / "out" / "edits.csv").read_text()
    assert "'=HYPERLINK(evil)" in text
    assert ",=HYPERLINK" not in text


def test_no_participant_is_in_an_export(tmp_path: Path):
    made = request()
    told = {"participant_id": "5f3c-SECRET", "device": "phone", "nested": [{"prolificPid": "SECRET", "seconds": 3}]}
    said = Assessment(ratings=scores(), raw=json.dumps({"rater": "SECRET", "answer": 5}), effective=told)
    plain = Assessment(ratings=scores(), raw="The rater's hat is red.")
    with Store.writing(tmp_path) as store:
        store.add([edit_row(made)])
        store.add([assessment_row(made.key, said), assessment_row(made.key, plain, epoch=1)])
        rows = list(rows_of(store, JUDGEMENTS))
    assert "SECRET" not in json.dumps(rows)
    assert json.loads(rows[0]["effective"]) == {"device": "phone", "nested": [{"seconds": 3}]}
    assert json.loads(rows[0]["raw"]) == {"answer": 5}
    assert rows[-1]["raw"] == "The rater's hat is red.", "words about pictures stay"


def test_both_people_of_a_request_are_there(tmp_path: Path):
    alone = request("p0")
    pair = replace(alone, portraits=(*alone.portraits, *request("p1").portraits))
    with Store.writing(tmp_path) as store:
        store.add([edit_row(alone), edit_row(pair)])
        rows = list(rows_of(store, EDITS))
    assert [(row["portrait"], row["second_portrait"]) for row in rows] == [("p0", None), ("p0", "p1")]


def test_descriptions_are_exported_where_any_were_made(run: Path):
    with Store.reading(run) as store:
        assert tables_in(store) == (EDITS, JUDGEMENTS)
    with Store.writing(run) as store:
        store.query("INSERT INTO spec VALUES ('k', 'measured', '1', '{}')")
        store.query(
            "INSERT INTO feature VALUES (1, 'key', 1, 'sha', 'k', 'described', 'Keep the freckles.', '{}', NULL,"
            " NULL, '{}', 1, 0.5, 0.0, 'now')"
        )
        assert tables_in(store) == (EDITS, JUDGEMENTS, FEATURES)
        (row,) = rows_of(store, FEATURES)
    assert row["sentence"] == "Keep the freckles."


def test_an_export_that_breaks_off_leaves_no_half_file(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(writers.json, "dumps", broken)
    with pytest.raises(OSError, match="disk full"):
        export_run(RecordedRun.open(run), "jsonl", tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
