from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stillme.report import ReportData
from stillme.report.manuscript import write_figures


@pytest.fixture(scope="module")
def few(paper: ReportData) -> ReportData:
    """Enough estimates for every kind of figure, and few forest plots."""
    wanted = ("skin_lightened", "race_changed", "skin_tone")
    kept = [e for e in paper.estimates if e.quantity in wanted and e.factor in ("", "race")]
    return replace(paper, estimates=tuple(kept), badges=("synthetic portraits",))


def test_the_papers_figures_are_written_and_the_rest_is_explained(few: ReportData, tmp_path: Path) -> None:
    written = write_figures(tmp_path, few, ("svg",))
    names = {path.name.split("-")[0] + path.name.split("-")[1] for path in written.files}
    assert {"figure04", "figure05", "figure06", "figure12", "figure13", "forestskin_lightened"} <= names
    assert dict(written.skipped) == {"figure-07-roles": "no role instruction was run"}
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in written.files)


def test_the_same_rows_give_the_same_figures(few: ReportData, tmp_path: Path) -> None:
    bare = replace(few, redact="omit", estimates=tuple(e for e in few.estimates if e.quantity != "skin_tone"))
    first = write_figures(tmp_path / "a", bare, ("svg", "pdf"))
    second = write_figures(tmp_path / "b", bare, ("svg", "pdf"))
    assert [path.read_bytes() for path in first.files] == [path.read_bytes() for path in second.files]
    assert {path.suffix for path in first.files} == {".svg", ".pdf"}


def test_left_out_portraits_are_in_no_figure(few: ReportData, tmp_path: Path) -> None:
    bare = replace(few, redact="omit", estimates=())
    written = write_figures(tmp_path, bare, ("svg",))
    reasons = dict(written.skipped)
    for name in ("figure-05-before-and-after", "figure-12-mosaic", "figure-13-one-instruction-every-group"):
        assert reasons[name] == "pictures are left out"


def test_every_figure_discloses_made_up_data(few: ReportData, tmp_path: Path) -> None:
    written = write_figures(tmp_path, replace(few, redact="omit"), ("svg",))
    assert written.files
    # Letters are drawn as glyphs, but matplotlib keeps the words beside them.
    assert all("synthetic portraits" in path.read_text() for path in written.files)
