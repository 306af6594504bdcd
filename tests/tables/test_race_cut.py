"""From which score on Tables 19 and 20 count a race as changed is the audit's choice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stillme.api.pipeline import run_stages
from stillme.findings.tables.paper import Chosen, as_csv, make_tables
from stillme.runs import RecordedRun
from tests.runs import rated_elsewhere


@pytest.mark.parametrize(("setting", "cut", "share"), [("", 3, 1 / 6), ("race_cut = 2", 2, 3 / 6)])
def test_the_cut_decides_whose_race_counts_as_changed(
    write_audit: Callable[..., Path], setting: str, cut: int, share: float
):
    """Scores 3, 2, 2, 1, 1, 1."""
    folder = write_audit(prompts='["O-01"]', extra=setting)
    run_stages(folder, ("edit",))
    rows = [f"p{index},O-01,{score},5" for index, score in enumerate((3, 2, 2, 1, 1, 1))]
    rated_elsewhere(folder, "portrait,prompt,race_change,edit_success", rows)
    with RecordedRun.open(folder) as run:
        by_editor, by_group = make_tables(run, Chosen(numbers=(19, 20)))
    assert f"race change: {cut} or more" in by_editor.caption
    assert f"score of {cut} or more" in by_group.caption
    (race,) = [line.split(",") for line in as_csv(by_editor).splitlines() if "Race Change" in line]
    assert float(race[4]) == pytest.approx(share)
    assert "no judge" not in as_csv(by_group)
