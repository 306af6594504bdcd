"""Every analysis is written as a table; what an audit has nothing for is said, not made up."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stillme.core.errors import UnknownName
from stillme.core.types import Rating, Request
from stillme.findings.tables.analyses import ANALYSES, BY_NAME, Written, analyse
from stillme.runs import RecordedRun
from tests import runs
from tests.command_lines import invoke, ran
from tests.records import rows_in


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two judges; group a comes back lighter by two points, more or less."""
    folder = tmp_path_factory.mktemp("analyses")
    dice = np.random.default_rng(5)

    def answer(editor: str, request: Request) -> dict[str, Rating]:
        hit = runs.group(request) == "a" and dice.random() < 0.8
        return runs.scores(float(dice.integers(2, 6)), 5.0 if hit else 3.0, float(dice.integers(1, 3)))

    audit = runs.write_audit(folder / "run", runs.people(folder / "people"), judges=("mild", "stern"))
    return runs.fill(audit, answer)


def test_what_the_audit_has_is_written_and_the_rest_is_named(run: Path):
    written = analyse(RecordedRun.open(run), only=list(ANALYSES))
    assert set(written) == set(ANALYSES)
    empty = {name for name, table in written.items() if not table.rows}
    asked_once = {"position_bias", "repeatability", "disclosure"}
    absent = {"pooled", "intersections", "mitigation", "above_floor", "roles", "against_people", "corrected"}
    without_readers = {"shifts", "transitions", "readings"}
    assert empty == absent | asked_once | without_readers | {"control_pairs"}
    for table in written.values():
        assert table.path.exists() == bool(table.rows)
        assert not table.rows or len(rows_in(table.path)) == table.rows


def test_large_tables_that_nothing_shows_are_written_by_name_only(run: Path):
    assert set(ANALYSES) - set(analyse(RecordedRun.open(run))) == BY_NAME
    found = json.loads(ran("tables", run, "--all", "cuts", "--json").stdout)["analyses"]
    assert set(ANALYSES) - set(found) == BY_NAME - {"cuts"}
    assert found["icc"]["rows"] > 0
    assert found["roles"] == {"file": None, "rows": 0}
    shown = invoke("tables", run, "--all", "cutz")
    assert "cuts" in str(shown.exception or shown.output)


def test_naive_tests_and_numbers_of_a_judge_without_calibration_are_marked(run: Path):
    written = analyse(RecordedRun.open(run), only=["contrasts", "icc", "cuts", "row_tests"])
    assert {row["naive"] for row in rows_in(written.pop("row_tests").path)} == {"True"}
    for table in written.values():
        assert {row["judge_note"] for row in rows_in(table.path) if row["judge"]} == {"not calibrated"}


def test_an_analysis_that_breaks_does_not_cost_the_others(run: Path, monkeypatch: pytest.MonkeyPatch):
    def broken(_: object) -> list[object]:
        raise ZeroDivisionError("a share of 8.7e-19")

    monkeypatch.setitem(dict_of(ANALYSES), "contrasts", broken)
    written = analyse(RecordedRun.open(run), only=["contrasts", "icc"])
    assert written["contrasts"].problem == "ZeroDivisionError: a share of 8.7e-19"
    assert written["icc"].rows


def dict_of(mapping: object) -> dict[str, object]:
    assert isinstance(mapping, dict)
    return mapping


def test_an_unknown_analysis_is_named(run: Path):
    with pytest.raises(UnknownName, match="Did you mean 'contrasts'"):
        analyse(RecordedRun.open(run), only=["contrast"])


def test_whoever_watches_knows_which_analysis_is_at_work_and_how_many_there_are(run: Path):
    seen: list[tuple[str, ...]] = []

    class Watch:
        def starts(self, name: str, place: int, total: int) -> None:
            seen.append((name, f"{place}/{total}"))

        def ends(self, name: str, written: Written) -> None:
            seen.append((name, f"{written.rows > 0}"))

    analyse(RecordedRun.open(run), only=["icc", "roles"], watch=Watch())
    steps = [("rows", "0/2"), ("icc", "1/2"), ("icc", "True"), ("roles", "2/2"), ("roles", "False")]
    assert seen == steps
