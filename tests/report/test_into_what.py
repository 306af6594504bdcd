"""The section "Into what?": flows, examples, and what the first screen says of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from stillme.api.pipeline import run_stages
from stillme.report.data import Redaction
from stillme.report.figure_files import write_figures
from stillme.report.findings import find
from stillme.report.into_what import findings, into_what
from stillme.report.writing import render
from tests import readings
from tests.report.planted import data_of
from tests.report.test_report import text_of


@pytest.fixture(scope="module")
def biased(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "biased"
    return ran(folder, names=("<b>Black", "Indian", "White"), share=0.4, wrong=0.1)


def page(folder: Path, redact: Redaction = "none") -> tuple[str, dict[str, Any] | None]:
    data = data_of(folder, redact)
    return render(data), into_what(data)


@pytest.fixture(scope="module")
def shown(biased: Path) -> tuple[str, dict[str, Any]]:
    html, section = page(biased)
    assert section is not None
    return html, section


def ran(folder: Path, **wanted: Any) -> Path:
    """A run of readers."""
    readings.write(folder, **wanted)
    run_stages(folder, ("edit", "judge"))
    return folder


def test_the_first_screen_says_who_appears_to_become_whom(shown: tuple[str, dict[str, Any]]):
    html, section = shown
    (sentence,) = section["sentences"]
    assert re.fullmatch(
        r"ours: \d+ % of edits of <b>Black and Indian portraits appear White to reader, \d+ % before the edit "
        r"\(\+.* points, .* to .*\); the other way .* points, .* to .*\.",
        sentence,
    )
    first = text_of(html[html.index('<header class="top">') : html.index("<main>")])
    assert "portraits appear White to reader" in first
    assert "No judge of pairs confirms it" in first, "a reader alone does not decide"


def test_flows_are_drawn_and_named_for_those_who_cannot_see_them(shown: tuple[str, dict[str, Any]]):
    html, section = shown
    ((judge, panels),) = section["flows"]
    assert judge == "reader"
    ((editor, arm, drawing),) = panels
    assert (editor, arm) == ("ours", "baseline")
    assert 'class="moves"' in drawing
    assert "Indian to White" in drawing
    assert "<b>" not in drawing, "labels are text"
    assert html.count('id="into-what"') == 1
    assert 'href="#into-what"' in html


def test_examples_are_of_different_people_and_are_left_out_with_the_portraits(
    biased: Path, shown: tuple[str, dict[str, Any]]
):
    _, section = shown
    assert len({picture.portrait for picture in section["examples"]}) == len(section["examples"]) == 3
    assert "whose unedited picture did not" in section["example_of"]
    html, redacted = page(biased, "omit")
    assert redacted["examples"] == ()
    assert "whose unedited picture did not" not in html


def test_the_page_says_whose_words_they_are_and_claims_nothing_about_a_person(shown: tuple[str, dict[str, Any]]):
    html, _ = shown
    text = text_of(html[html.index('id="into-what"') :])
    assert "values of “group” in this set of portraits (labels from: made up)" in text
    assert "how a picture appears to a reader, not who a person is" in text


def test_figures_have_the_flows(biased: Path, tmp_path: Path):
    assert any("into_what" in file.name for file in write_figures(tmp_path, data_of(biased)))


def test_an_honest_editor_gets_no_sentence_and_no_coloured_flow(tmp_path: Path):
    html, section = page(ran(tmp_path / "a", share=0.0, wrong=0.25))
    assert section["sentences"] == []
    assert section["examples"] == ()
    assert 'class="moves"' not in html


def test_doubts_and_refusals_are_shown_by_group(tmp_path: Path):
    _, section = page(ran(tmp_path / "a", unsure="person % 3 == 1", prompts=("O-01", "V-01")))
    assert ("reader", "Indian", "unedited", "100.0 %", "0.0 %") in section["unsure"]
    assert {group for _, group, *_ in section["unsure"]} == {"Indian"}
    assert "cannot tell in" in section["toward_reference"][0][1]


def test_without_readers_there_is_no_section(tmp_path: Path):
    folder = readings.write(tmp_path / "a", prompts=("O-01",), per_group=2)
    readings.without_readers(folder)
    run_stages(folder, ("edit", "judge"))
    html, section = page(folder)
    assert section is None
    assert "into-what" not in html
    assert list(findings(data_of(folder))) == []
    assert find(data_of(folder)).answers
