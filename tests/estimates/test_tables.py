from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stillme.estimates import Edits, Scores, Settings, estimate
from stillme.findings.tables.estimates import write_tables
from tests.records import rows_in

pytestmark = pytest.mark.numeric

Simulate = Callable[..., tuple[Edits, list[Scores]]]


def cells(path: Path) -> list[list[str]]:
    return list(csv.reader(path.read_text("utf-8").splitlines()))


quick = Settings(factors=("race",))


def test_the_same_estimates_give_the_same_bytes_in_any_order(simulate: Simulate, tmp_path: Path) -> None:
    estimates = estimate(*simulate(1), quick)
    first = [path.read_bytes() for path in write_tables(estimates, tmp_path / "a", quick)]
    second = [path.read_bytes() for path in write_tables(reversed(estimates), tmp_path / "b", quick)]
    assert first == second
    assert all(b"\r" not in content for content in first)


def test_every_estimate_is_a_row_and_reads_back(simulate: Simulate, tmp_path: Path) -> None:
    estimates = estimate(*simulate(1), quick)
    everything, groups, disparities, *_ = write_tables(estimates, tmp_path, quick)
    rows = rows_in(everything)
    assert len(rows) == len(estimates)
    assert len(rows_in(groups)) + len(rows_in(disparities)) == len(estimates)
    disparity = next(row for row in rows if row["scope"] == "disparity" and row["quantity"] == "soft_erasure")
    assert 0 <= float(disparity["low"]) <= float(disparity["value"]) <= float(disparity["high"])
    assert float(disparity["null_high"]) > float(disparity["null_mean"]) > 0


def test_a_name_cannot_become_a_spreadsheet_formula(simulate: Simulate, tmp_path: Path) -> None:
    edits, scores = simulate(1)
    hostile = replace(edits, editors=('=HYPERLINK("http://x")',))
    named = [replace(scores[0], judge="@SUM(1)")]
    for path in write_tables(estimate(hostile, named, quick), tmp_path, quick)[:3]:
        for row in cells(path):
            for cell in row:
                assert cell[:1] not in ("=", "+", "@"), cell
                assert cell[:1] != "-" or float(cell) < 0


def test_nothing_is_left_behind_beside_the_tables(simulate: Simulate, tmp_path: Path) -> None:
    write_tables(estimate(*simulate(1), quick), tmp_path, quick)
    assert sorted(path.name for path in (tmp_path / "tables").iterdir()) == [
        "abstentions.csv",
        "disparities.csv",
        "estimates.csv",
        "findings.json",
        "groups.csv",
    ]


def test_no_estimates_still_make_tables_with_a_header(tmp_path: Path) -> None:
    for path in write_tables([], tmp_path, quick)[:3]:
        assert path.read_text("utf-8").startswith("editor,arm,judge,quantity")
