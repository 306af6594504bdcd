"""A run beside the paper: whose numbers are compared, what the interval says, and why they are not the same."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from stillme import estimates, prompts
from stillme.cli import cli
from stillme.estimates import Settings
from stillme.paper import published
from stillme.report import render
from stillme.report.contents import report_data
from stillme.results import Run
from stillme.results.beside import Beside, PaperComparison, beside_paper, published_text
from stillme.results.beside.design import design_differences
from stillme.results.beside.part import Part
from stillme.results.beside.significance import beside_test
from stillme.types import Interval, NotEstimable, Rated, Rating, Request
from tests import runs
from tests.estimates import worlds

RACES = ("Black", "White", "Latino_Hispanic")
AXES = "edit_success = 5, skin_tone = 3, race_change = 1, gender_change = 1, age_change = 3"


def write(folder: Path, *, judges: str = "", editors: str = "", extra: str = "", arms: str = '["baseline"]') -> Path:
    """An audit by the paper's prompts over people with the paper's labels."""
    portraits = runs.people(folder / "portraits", per_group=6, groups=RACES)
    asked = [prompt.id for prompt in prompts.diagnostic()[::4]] + ["V-05"]
    (folder / "audit.toml").write_text(
        f"title = 'Beside'\narms = {arms}\n[portraits]\nsource = '{portraits}'\n"
        f"[prompts]\nonly = {sorted(set(asked))}\n"
        + (editors or "[[editors]]\nuse = 'noop'\nname = 'FLUX.2-dev'\nseeds = [7]\n")
        + (judges or f"[[judges]]\nuse = 'scripted'\nname = 'scripted'\n[judges.parameters]\nscores = {{ {AXES} }}\n")
        + "[estimates]\nfactors = ['group']\n"
        + extra
    )
    return folder


def answer(_editor: str, request: Request) -> Mapping[str, Rating]:
    """Black people's race changes in three of four edits; the aging prompt ages, and nothing else does."""
    changed = request.portraits[0].attributes["group"] == "Black" and runs.luck(request) < 0.75
    scores = {
        "edit_success": 5.0,
        "skin_tone": 4.0 if runs.luck(request, "skin") < 0.5 else 3.0,
        "race_change": 4.0 if changed else 1.0,
        "gender_change": 1.0,
        "age_change": 5.0 if request.prompt.years else 3.0,
    }
    return {axis: Rated(score=score) for axis, score in scores.items()}


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> PaperComparison:
    folder = runs.fill(write(tmp_path_factory.mktemp("beside")), answer)
    with Run.open(folder) as run:
        return beside_paper(run)


def rows(comparison: PaperComparison, place: str, **wanted: str) -> list[Beside]:
    return [
        row
        for row in comparison.numbers
        if row.published.place == place and all(getattr(row.published, name) == one for name, one in wanted.items())
    ]


def test_every_number_of_the_paper_is_compared_or_left_out_with_a_reason(comparison: PaperComparison):
    compared = {row.published for row in (*comparison.numbers, *comparison.tests)}
    left_out = {number for number, reason in comparison.left_out if reason}
    assert compared | left_out == set(published())
    assert not compared & left_out


def test_editors_and_groups_are_matched_by_name(comparison: PaperComparison):
    assert {row.published.editor for row in comparison.numbers} == {"FLUX.2-dev", "all", "each"}
    groups = {row.published.group for row in rows(comparison, "Table 20")}
    assert groups == {"Black", "White", "Latino", ""}
    (black,) = rows(comparison, "Table 20", group="Black")
    (white,) = rows(comparison, "Table 20", group="White")
    assert isinstance(black.yours, Interval)
    assert isinstance(white.yours, Interval)
    assert 0.5 < black.yours.value < 1
    assert white.yours.value == 0
    assert (black.editor, black.judge, black.portraits, black.edits) == ("FLUX.2-dev", "scripted", 6, 36)


def test_requested_ageing_is_not_compared_as_drift(comparison: PaperComparison):
    (age,) = rows(comparison, "Table 4", quantity="age_change")
    assert isinstance(age.yours, Interval)
    assert age.yours.value == 3.0
    assert any("30 years more" in sentence for sentence in comparison.differences)


def test_the_difference_carries_your_interval_and_the_reading_only_says_where_the_number_lies(
    comparison: PaperComparison,
):
    (black,) = rows(comparison, "Table 20", group="Black")
    difference = black.difference
    assert isinstance(black.yours, Interval)
    assert difference is not None
    assert difference.value == pytest.approx(black.yours.value - 0.167)
    assert difference.high - difference.low == pytest.approx(black.yours.high - black.yours.low)
    assert black.reading == "the paper's number is below your interval"
    (lightened,) = rows(comparison, "§5.1", quantity="skin_lightened")
    assert lightened.difference is None, "a range has no single difference"
    readings = {row.reading for row in comparison.numbers}
    assert not any("replicat" in reading or "confirm" in reading for reading in readings)


@pytest.mark.parametrize(
    ("low", "high", "reading"),
    [
        (0.60, 0.65, "your interval overlaps the paper's range"),
        (0.72, 0.80, "the paper's range is below your interval"),
        (0.10, 0.61, "the paper's range is above your interval"),
        (0.10, 0.90, "your interval overlaps the paper's range"),
    ],
)
def test_a_range_is_read_as_a_range(comparison: PaperComparison, low: float, high: float, reading: str):
    (row,) = rows(comparison, "§5.1", quantity="skin_lightened")
    interval = Interval(value=(low + high) / 2, low=low, high=high, confidence=0.95, method="")
    assert replace(row, yours=interval).reading == reading
    assert replace(row, yours=NotEstimable(reason="only 1 portrait")).reading == "only 1 portrait"


def test_numbers_are_printed_as_the_paper_prints_them(comparison: PaperComparison):
    texts = {(number.place, number.statistic): published_text(number) for number, _ in comparison.left_out}
    assert texts["Table 7", "stereotype followed"] == "86 %"
    assert texts["Appendix G.6", "Wilcoxon signed-rank p"] == "≤ 0.05"
    assert texts["§5.3", "Kruskal–Wallis H"] == "24.7"
    (lightened,) = rows(comparison, "§5.1", quantity="skin_lightened")
    assert published_text(lightened.published) == "62–71 %"
    (gap,) = rows(comparison, "Table 20", statistic="max - min")
    assert published_text(gap.published) == "17.2 points"


def test_the_designs_differences_are_derived_from_the_run(comparison: PaperComparison):
    text = "\n".join(comparison.differences)
    assert "You edit 18 portraits of your choice; the paper edits 84 photographs from FairFace." in text
    assert "Your audit has 6 of the paper's 20 diagnostic prompts." in text
    assert "FLUX.2-dev is compared with FLUX.2-dev by its name: it is the plugin `noop`." in text
    assert "FLUX.2-dev runs with seed 7; the paper's is 42." in text
    assert "Your scores are by scripted; the paper's by Gemini 3.0 Flash Preview and GPT-5-mini." in text
    assert "Your judges were not told the labels" in text
    assert "combined by" not in text, "there is one judge"
    assert "You have no Step1X-Edit-v1p2, Qwen-Image-Edit-2511" in text


def test_the_papers_own_setting_gives_none_of_these_differences(tmp_path: Path):
    judges = "".join(
        f"[[judges]]\nuse = '{name}'\n[judges.parameters]\nprofile = 'paper'\ndisclosure = 'paper'\n"
        for name in ("gemini-3-flash", "gpt-5-mini")
    )
    editors = "".join(
        f"[[editors]]\nuse = '{name}'\n" for name in ("flux2-dev", "qwen-image-edit-2511", "step1x-edit-v1p2")
    )
    folder = write(tmp_path, judges=judges, editors=editors, extra="[ensemble]\nrule = 'paper'\n")
    runs.fill(folder, answer)
    with Run.open(folder) as run:
        comparison = beside_paper(run)
    text = "\n".join(comparison.differences)
    assert {row.published.editor for row in rows(comparison, "Table 4")} == {
        "FLUX.2-dev",
        "Step1X-Edit-v1p2",
        "Qwen-Image-Edit-2511",
    }
    for words in ("seed", "not told", "Your scores are by", "combined by", "plugin", "You have no", "runs with"):
        assert words not in text, words


def imported(*names: str) -> str:
    """Models whose scores were made elsewhere."""
    return "".join(
        f"[[judges]]\nuse = 'imported'\nname = '{name}'\n[judges.parameters]\nsource = '{name}'\nkind = 'model'\n"
        f"axes = {sorted(part.split(' ')[0] for part in AXES.split(', '))}\n"
        for name in names
    )


def test_nothing_is_claimed_about_what_imported_judges_were_told(tmp_path: Path):
    extra = "[ensemble]\nrule = 'paper'\njudges = ['mine', 'gemini-3-flash']\n"
    folder = runs.fill(write(tmp_path, judges=imported("gemini-3-flash", "mine"), extra=extra), answer)
    with Run.open(folder) as run:
        text = "\n".join(beside_paper(run).differences)
    assert "not told" not in text
    assert "What gemini-3-flash, mine knew about the portraits is not recorded" in text
    assert "Beyond one point mine decides; in the paper Gemini 3.0 Flash Preview (Eq. 3)." in text


def test_cases_from_a_list_are_not_called_unselected(tmp_path: Path):
    folder = write(tmp_path, extra="[sample]\ncells = 'cells.csv'\n")
    cells = [f"FLUX.2-dev,p{place:02},{prompt}" for place in range(18) for prompt in ("O-01", "O-05", "V-05")]
    (folder / "cells.csv").write_text("\n".join(["editor,portrait,prompt", *cells]))
    runs.fill(folder, answer)
    change = next(number for number in published() if number.place == "Table 26")
    yours = NotEstimable(reason="only the sentence counts here")
    beside = Beside(published=change, editor="FLUX.2-dev", judge="scripted", yours=yours, portraits=0, edits=0)
    with Run.open(folder) as run:
        text = "\n".join(design_differences(run, run.design.editors, [beside]))
    assert "not selected by their outcome" not in text
    assert "yours are those of cells.csv" in text


def test_a_planted_editor_is_not_compared(tmp_path: Path):
    folder = runs.write_audit(tmp_path, runs.people(tmp_path / "portraits", groups=RACES))
    runs.fill(folder, lambda _editor, _request: runs.scores())
    with Run.open(folder) as run:
        comparison = beside_paper(run)
    assert comparison.numbers == comparison.tests == comparison.differences == ()
    assert "every editor of yours plants known changes" in {reason for _, reason in comparison.left_out}


@pytest.mark.numeric
def test_mitigation_by_people_is_pooled_over_editors_and_tested_by_portrait():
    """A feature prompt lowers every score of half the portraits by a point: 14 units, not 168."""
    stream = np.random.default_rng(4)
    before = stream.integers(2, 5, (14, 4, 1, 1, 3)).astype(np.float64)
    helped = (np.arange(14) % 2 == 0)[:, None, None, None, None]
    values = np.concatenate([before, before - helped], axis=2)
    edits, score = worlds.rows(
        worlds.people("AB", 7), values, arms=("baseline", "feature"), editors=("x", "y", "z"), axis="race_change"
    )
    part = Part(
        edits=edits,
        scores=(replace(score, judge="rater", kind="person"),),
        judge="",
        raters=frozenset({"rater"}),
        factor="race",
        levels={"Black": "A", "White": "B"},
        run_settings=Settings(factors=()),
    )
    wanted = {"place": "Appendix G.6", "quantity": "race_change"}
    change, test = (
        next(
            number
            for number in published()
            if number.statistic == statistic and all(getattr(number, name) == one for name, one in wanted.items())
        )
        for statistic in ("change", "Wilcoxon signed-rank p")
    )
    estimate = part.estimate(change, "all")
    assert estimate is not None
    assert isinstance(estimate.outcome, Interval)
    assert (estimate.outcome.value, estimate.portraits, estimate.edits) == (-0.5, 14, 14 * 4 * 3)
    result = beside_test(part, test, "x + y + z")
    assert result.p is not None
    assert result.portrait_p is not None
    assert result.p < 1e-10 < 0.001 < result.portrait_p < 0.05
    # Before and after, over the pairs, by group.
    baseline = next(n for n in published() if (n.place, n.arm, n.group) == ("Table 26", "baseline", "Black"))
    (mean,) = [part.estimate(replace(baseline, judge="people"), editor) for editor in ("x",)]
    assert mean is not None
    assert isinstance(mean.outcome, Interval)
    assert mean.outcome.value == pytest.approx(before[:7, :, 0, 0, 0].mean())


def test_the_command_shows_the_same_in_every_format(tmp_path: Path):
    folder = runs.fill(write(tmp_path), answer)

    def shown(*arguments: str) -> str:
        result = CliRunner().invoke(cli, ["tables", str(folder), "--beside", "paper", *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    rows = json.loads(shown("--json"))["rows"]
    assert len({(row["place"], row["statistic"], row["group"], row["quantity"]) for row in rows}) > 60
    lines = list(csv.DictReader(io.StringIO(shown("--format", "csv"))))
    assert len(lines) == len(rows)
    for line in lines:
        assert bool(line["left_out"]) != bool(line["reading"]), line
    markdown = shown()
    assert "| FLUX.2-dev, Race Change" in markdown
    assert "Your judges were not told the labels" in markdown
    assert "your interval contains the paper's number" in markdown
    assert shown("--format", "tex").isascii()
    files = {path.name for path in (folder / "tables" / "paper").iterdir()}
    assert files == {"beside-the-paper.csv", "beside-the-paper.md", "beside-the-paper.tex"}
    refused = CliRunner().invoke(cli, ["tables", str(folder), "--beside", "paper", "--table", "4"])
    assert refused.exit_code == 2


def test_the_report_has_a_section_only_where_something_is_comparable(tmp_path: Path):
    folder = runs.fill(write(tmp_path / "paper"), answer)
    planted = runs.write_audit(tmp_path / "planted", runs.people(tmp_path / "planted" / "portraits", groups=RACES))
    runs.fill(planted, lambda _editor, _request: runs.scores())
    pages: list[str] = []
    for place in (folder, planted):
        with Run.open(place) as run:
            edits, scores = run.results.edits, run.results.scores
            pages.append(render(report_data(run, estimates.estimate(edits, scores, run.settings))))
    assert '<section id="beside">' in pages[0]
    assert "the paper edits 84 photographs from FairFace" in pages[0]
    assert '<section id="beside">' not in pages[1]
