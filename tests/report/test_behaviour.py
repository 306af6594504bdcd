"""What a reader must know of the judges has a section of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from stillme.core.types import Abstained, Assessment, Request
from stillme.report import render
from stillme.report.data import ReportData
from stillme.report.judges import behaviour_section
from tests import runs
from tests.records import small_audit
from tests.report.planted import data_of
from tests.report.test_report import Tree, text_of
from tests.results.judged import fill, judge, rated, write_audit


def say(name: str, request: Request, epoch: int) -> Assessment:
    """`flash` rates higher with the edit first, and is unsure; `told` sees a change in group a; `mini` is shy there."""
    luck, in_a = runs.luck(request, f"{name}{epoch}"), runs.group(request) == "a"
    if name == "mini" and in_a and luck < 0.4:
        return Assessment(ratings={"race_change": Abstained(reason="no")})
    score = 2.0 + (name == "flash") * (epoch % 2) * (luck < 0.5) + (luck < 0.2)
    snapshot = "gpt-5.2-2026-01-10" if luck < 0.7 else "gpt-5.2-2026-03-01"
    models = {"flash": "flash", "mini": snapshot, "told": "gpt-5.2"}
    return rated(models[name], race_change=score + 2 * (name == "told" and in_a))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ReportData:
    folder = write_audit(
        tmp_path_factory.mktemp("behaviour"),
        judge("flash", model="flash", order="both", epochs=2),
        judge("mini"),
        judge("told", disclosure="paper"),
        ensemble={"rule": "paper", "judges": ["mini", "flash"]},
    )
    return data_of(fill(folder, say))


def test_who_is_combined_and_who_decides_is_said(data: ReportData):
    section = behaviour_section(data)
    said = " ".join(section["sentences"])
    assert "The ensemble (paper) combines mini and flash." in said
    assert "mini, the primary judge of Eq. 3, decides" in said


def test_missing_judges_and_changed_models_are_warnings(data: ReportData):
    section = behaviour_section(data)
    missing, unequal, changed = section["warnings"]
    assert "lack a judge (“Race Change”): mini gave none for" in missing
    assert "in some groups of group than in others" in unequal
    assert changed.startswith("mini asked for gpt-5.2, and the model changed during the run: gpt-5.2-2026-")


def test_the_page_is_well_formed_and_has_the_section(data: ReportData):
    page = render(data)
    Tree(page)
    assert '<a href="#behaviour">Behaviour</a>' in page
    words = text_of(page)
    assert "How the judges behave" in words
    assert "Some combined scores lack a judge." in words
    assert "or not one model throughout" in words


def test_one_model_that_gave_every_answer_is_named(tmp_path: Path):
    section = behaviour_section(data_of(fill(write_audit(tmp_path, judge("mini")), lambda *_: rated(race_change=1.0))))
    assert section["sentences"] == ["gpt-5.2 gave all 96 answers of mini."]
    assert section["warnings"] == []


def test_without_a_model_there_is_no_section(tmp_path: Path):
    sections = {"judges": [{"use": "instruments"}], "estimates": {"factors": ["group"]}}
    source = {"source": str(runs.people(tmp_path / "people"))}
    folder = small_audit(tmp_path / "run", portraits=source, prompts=["O-01"], **sections)
    runs.fill(folder, lambda *_: {})
    data = data_of(folder)
    assert data.behaviour is None
    assert 'id="behaviour"' not in render(data)
