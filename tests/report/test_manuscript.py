from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stillme import numbers
from stillme.report import ReportData
from stillme.report.manuscript import arms, examples, portraits, rates, write_figures


@pytest.fixture(scope="module")
def few(paper: ReportData) -> ReportData:
    """Enough estimates for every kind of figure, and few forest plots."""
    wanted = ("skin_lightened", "race_changed", "skin_tone")
    kept = [e for e in paper.estimates if e.quantity in wanted and e.factor in ("", "race")]
    return replace(paper, estimates=tuple(kept), badges=("synthetic portraits",))


def test_the_papers_figures_are_written_and_the_rest_is_explained(few: ReportData, tmp_path: Path) -> None:
    written = write_figures(tmp_path, few, ("svg",))
    names = {path.name.split("-")[0] + path.name.split("-")[1] for path in written.files}
    assert {
        "figure01",
        "figure02",
        "figure03",
        "figure04",
        "figure05",
        "figure06",
        "figure12",
        "figure13",
        "forestskin_lightened",
    } <= names
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
    assert not any("figure-01" in path.name or "figure-02" in path.name for path in written.files)
    for name in ("figure-05-before-and-after", "figure-12-mosaic", "figure-13-one-instruction-every-group"):
        assert reasons[name] == "pictures are left out"


def test_every_figure_discloses_made_up_data(few: ReportData, tmp_path: Path) -> None:
    written = write_figures(tmp_path, replace(few, redact="omit"), ("svg",))
    assert written.files
    # Letters are drawn as glyphs, but matplotlib keeps the words beside them.
    assert all("synthetic portraits" in path.read_text() for path in written.files)


def test_figure_6_is_by_people_where_people_rated_unless_a_judge_is_named(few: ReportData) -> None:
    def titles(data: ReportData) -> list[str]:
        return [axes.get_title(loc="left") for axes in arms.draw(data).axes]

    (judge,) = few.headline_judges
    as_people = tuple(replace(score, judge="people", kind="person") for score in few.scores if score.judge == judge)
    theirs = tuple(replace(e, judge="people") for e in few.estimates if e.judge == judge)
    effects = tuple(replace(e, judge="people") for e in few.mitigation if e.judge == judge)
    rated = replace(
        few,
        scores=(*few.scores, *as_people),
        estimates=(*few.estimates, *theirs),
        mitigation=(*few.mitigation, *effects),
    )
    assert len(titles(rated)) == 3
    assert all(title.endswith("people") for title in titles(rated))
    assert all(title.endswith(judge) for title in titles(replace(rated, judge=judge)))
    assert not any(title.endswith("people") for title in titles(few))


def test_figure_6_shows_what_the_arm_changes_on_every_axis_of_change(few: ReportData) -> None:
    axes_of_change = ("skin_tone", "race_change", "gender_change", "age_change")
    effects = [effect for effect in few.mitigation if effect.quantity == "race_change"]
    everything = tuple(replace(effect, quantity=axis) for axis in reversed(axes_of_change) for effect in effects)
    last = arms.draw(replace(few, mitigation=everything)).axes[-1]
    titles = [label.get_text() for label in last.get_xticklabels()]
    assert titles == [numbers.title(axis) for axis in axes_of_change]
    assert [len(line.get_xdata()) for line in last.lines if line.get_label() in few.edits.editors] == [4, 4, 4]


def test_figure_4_counts_a_changed_race_from_the_audits_cut_as_table_20_does(few: ReportData) -> None:
    def highest(data: ReportData) -> float:
        (_, race) = rates.draw(data).axes
        return float(max(race.lines[0].get_ydata()))

    assert highest(replace(few, race_cut=2)) > highest(few) > highest(replace(few, race_cut=5))


def test_figure_13_of_a_sample_is_left_out_with_the_reason(few: ReportData) -> None:
    rows = np.arange(len(few.edits)) % 7 == 0
    sampled = replace(
        few, edits=few.edits.where(rows), scores=tuple(score.where(rows) for score in few.scores), happened=None
    )
    assert portraits.grid(sampled) == "too few edits of matched portraits were asked for: the audit is a sample"


def test_figure_4_takes_all_editors_together(few: ReportData) -> None:
    drawn = rates.draw(few).axes
    assert [axes.get_title(loc="left").split("\n")[1].startswith("all editors") for axes in drawn] == [True, True]
    assert [len(axes.lines[0].get_xdata()) for axes in drawn] == [7, 7]


def test_examples_of_soft_erasure_were_not_made_and_of_replacement_changed_the_person(few: ReportData) -> None:
    for axes in examples.failures(few).axes:
        if text := axes.get_xlabel():
            axis, value = text.split("\n")[0].rsplit(" ", 1)
            assert float(value) <= 2 if axis == "Edit Success" else float(value) != 1, text
