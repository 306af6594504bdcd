"""Figures for a notebook or a manuscript are the page's own drawings."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from stillme.core.errors import StillmeError
from stillme.report import ReportData, render
from stillme.report.figure_files import plot, write_figures
from stillme.report.paper import paper_figures

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def few(paper: ReportData) -> ReportData:
    """Enough estimates for every kind of figure, and few forest plots."""
    wanted = ("skin_lightened", "race_changed", "skin_tone")
    kept = [e for e in paper.estimates if e.quantity in wanted and e.factor in ("", "race")]
    raters = [
        replace(score, judge="people", kind="person", value=np.clip(score.value - 0.5, 1, 5))
        for score in paper.scores
        if score.judge == "ensemble (mean)"
    ]
    scores = (*paper.scores, *raters)
    return replace(paper, scores=scores, estimates=tuple(kept), badges=("synthetic portraits",))


@pytest.fixture(scope="module")
def written(few: ReportData, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_figures(tmp_path_factory.mktemp("figures"), few)


def test_every_kind_of_drawing_is_written(written: list[Path]) -> None:
    assert {path.stem.split("-")[0] for path in written} == {"figure", "forest", "scores", "change"}
    assert {path.suffix for path in written} == {".svg"}


def test_one_plot_is_the_file_that_export_writes(few: ReportData, written: list[Path], tmp_path: Path) -> None:
    drawn = plot(few, "skin_lightened", "race")
    (file,) = [path for path in written if path.stem == drawn.name]
    assert drawn._repr_svg_() == file.read_text()
    assert drawn.save(tmp_path / "figure").read_text() == file.read_text()


def test_a_plot_of_an_unknown_name_says_which_are_known(few: ReportData) -> None:
    with pytest.raises(StillmeError, match="Did you mean 'skin_lightened'"):
        plot(few, "skin_lightend", "race")
    with pytest.raises(StillmeError, match=r"Unknown factor 'rac'\. Did you mean 'race'"):
        plot(few, "skin_lightened", "rac")


def test_a_drawing_is_the_pages_own_without_its_links(few: ReportData, written: list[Path]) -> None:
    page = render(few)
    for path in written:
        if path.stem.startswith("forest"):
            text = path.read_text()
            shown = re.findall(r'<text class="value[^"]*"[^>]*>[^<]*', text)
            assert shown
            assert all(part in page for part in shown), path.name
            assert "<a " not in text


def test_a_drawing_is_an_image_of_its_own_and_discloses_made_up_data(written: list[Path]) -> None:
    """Programs that make PDF of SVG know no variables of a style sheet, and load nothing."""
    for path in written:
        root = ElementTree.fromstring(path.read_text())
        assert root.tag == f"{SVG}svg"
        style = root.findtext(f"{SVG}style") or ""
        assert ".whisker" in style
        assert not [part for part in ("var(", "url(") if part in style]
        heights = [float(part.get("height", 0)) for part in root.iter(f"{SVG}svg")]
        assert heights[0] >= sum(heights[1:]), "panels are below each other"
        assert "synthetic portraits" in path.read_text()


def test_the_same_rows_give_the_same_bytes(few: ReportData, written: list[Path], tmp_path: Path) -> None:
    again = write_figures(tmp_path, few)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in written]


def _labels(text: str) -> list[str]:
    return [re.findall(r">([^<]+)<", label)[-1] for label in re.findall(r'<text class="label.*?</text>', text)]


def test_figure_4_has_every_editor_within_each_group_in_the_order_of_the_design(
    few: ReportData, written: list[Path]
) -> None:
    (file,) = [path for path in written if path.stem == "figure-4"]
    (first, *_), editors = (
        re.findall(r'<svg [^>]*class="forest".*?</svg>', file.read_text(), re.DOTALL),
        few.edits.editors,
    )
    design = list(dict.fromkeys(portrait.attributes["race"] for portrait in few.edits.portraits))
    assert _labels(first) == design
    assert first.count('<circle class="point strong"') == len(editors) * (len(design) + 1), "and the legend"
    for editor in editors:
        assert first.count(f">{editor}<") == 1
    (known,) = [
        row.outcome
        for row in few.headlines
        if (row.quantity, row.editor, row.group, row.scope) == ("skin_lightened", editors[0], design[0], "group")
        and row.judge in few.headline_judges
    ]
    assert f"{editors[0]} {100 * known.value:.1f}" in first


def test_groups_are_not_sorted_by_the_alphabet(few: ReportData) -> None:
    order = list(dict.fromkeys(portrait.attributes["race"] for portrait in few.edits.portraits))
    swap = dict(zip(order, reversed(order), strict=True))
    renamed = tuple(
        replace(portrait, attributes={**portrait.attributes, "race": swap[portrait.attributes["race"]]})
        for portrait in few.edits.portraits
    )
    turned = replace(few, edits=replace(few.edits, portraits=renamed))
    (panels, *_) = [panels for name, _, panels in paper_figures(turned) if name == "figure-4"]
    assert _labels(panels[0][2]) == [swap[race] for race in order]


def test_figure_6_has_people_and_models_a_group_and_changes_of_all_editors_and_of_each(written: list[Path]) -> None:
    (file,) = [path for path in written if path.stem == "figure-6"]
    skin, *changes = re.findall(r'<svg [^>]*class="forest".*?</svg>', file.read_text(), re.DOTALL)
    assert skin.count(">people<") == skin.count(">models<") == 1
    for drawing in changes:
        assert drawing.count(">all editors<") == 1
    assert len(changes) >= 1
    assert all(re.search(r"all editors [−+]?\d", drawing) for drawing in changes)


def test_without_people_there_is_no_figure_6(few: ReportData) -> None:
    alone = replace(few, scores=tuple(score for score in few.scores if score.kind != "person"))
    assert {name for name, *_ in paper_figures(alone)} == {"figure-4"}
