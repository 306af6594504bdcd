"""A run compared with the paper: whose numbers stand in one cell, and why they are not the same measurement."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from stillme import audit, estimates
from stillme.core import prompts
from stillme.core.errors import InvalidAudit
from stillme.core.paper import published
from stillme.core.types import Interval, Rated, Rating, Request
from stillme.findings.exchange import ColumnMapping, RowsAsked, import_rows
from stillme.findings.tables.paper import PaperTable, as_csv, as_markdown, make_tables
from stillme.findings.tables.paper.making import with_paper
from stillme.findings.tables.paper.table import Number, TableRow
from stillme.report import render
from stillme.report.data import report_data
from stillme.runs import RecordedRun
from stillme.runs.paper_names import PaperNames, missing_names, paper_names, published_text
from tests import runs

RACES = ("Black", "White", "Latino_Hispanic")
AXES = "edit_success = 5, skin_tone = 3, race_change = 1, gender_change = 1, age_change = 3"
FLUX = "[[editors]]\nuse = 'noop'\nname = 'FLUX.2-dev'\nseeds = [7]\n"


def write(folder: Path, *, judges: str = "", editors: str = FLUX, extra: str = "") -> Path:
    """An audit by the paper's prompts over people with the paper's labels."""
    portraits = runs.people(folder / "portraits", per_group=6, groups=RACES)
    asked = [prompt.id for prompt in prompts.diagnostic()[::4]] + ["V-05"]
    (folder / "audit.toml").write_text(
        f"title = 'Compared'\n[portraits]\nsource = '{portraits}'\n[prompts]\nonly = {sorted(set(asked))}\n"
        + editors
        + (judges or f"[[judges]]\nuse = 'scripted'\nname = 'scripted'\n[judges.parameters]\nscores = {{ {AXES} }}\n")
        + "[estimates]\nfactors = ['group']\n"
        + extra
    )
    return folder


def answer(_editor: str, request: Request) -> Mapping[str, Rating]:
    """Black people's race changes in three of four edits."""
    changed = request.portraits[0].attributes["group"] == "Black" and runs.luck(request) < 0.75
    return runs.scores(race=4 if changed else 1) | {"gender_change": Rated(score=1), "age_change": Rated(score=3)}


def page_of(run: RecordedRun) -> str:
    return render(report_data(run, estimates.estimate(run.results.edits, run.results.scores, run.settings)))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    return RecordedRun.open(runs.fill(write(tmp_path_factory.mktemp("paper")), answer))


@pytest.fixture(scope="module")
def tables(run: RecordedRun) -> dict[int, PaperTable]:
    return {table.number: table for table in make_tables(run)}


def cell(table: PaperTable, row: str, column: str) -> Number:
    (found,) = [each for each in table.rows if each.label == row]
    number = found.cells[table.head[1:].index(column)]
    assert isinstance(number, Number)
    return number


def test_the_papers_number_stands_in_the_cell_of_its_own_table(tables: dict[int, PaperTable]):
    assert cell(tables[4], "FLUX.2-dev", "Race Change").paper == "1.62"
    assert cell(tables[19], "FLUX.2-dev", "Soft Eras.").paper.endswith(" %")
    black, gap = cell(tables[20], "Black", "FLUX.2-dev"), cell(tables[20], "Disparity", "FLUX.2-dev")
    assert (black.paper, gap.paper) == ("16.7 %", "17.2 points")
    assert 0.5 < black.outcome.value < 1, "and yours stays yours"
    assert cell(tables[20], "Latino_Hispanic", "FLUX.2-dev").paper, "by another spelling"
    assert "; paper 1.62 |" in re.sub(r" +\|", " |", as_markdown(tables[4]))
    rows = list(csv.DictReader(io.StringIO(as_csv(tables[4]))))
    assert {row["column"]: row["paper"] for row in rows}["Race Change"] == "1.62"


def test_below_the_table_stands_why_the_two_are_not_the_same_measurement(tables: dict[int, PaperTable]):
    text = "\n".join(tables[4].notes)
    assert "You edit 18 portraits of your choice; the paper edits 84 photographs from FairFace." in text
    assert "Your audit has 6 of the paper's 20 diagnostic prompts." in text
    assert "FLUX.2-dev is `noop`, which is not the paper's configuration of FLUX.2-dev." in text
    assert "FLUX.2-dev runs with seed 7; the paper's is 42." in text
    assert "Your scores are by scripted; the paper's by Gemini 3.0 Flash Preview and GPT-5-mini." in text
    assert "replicat" not in text


def test_the_papers_own_setting_gives_none_of_these_differences(tmp_path: Path):
    judges = "".join(
        f"[[judges]]\nuse = '{name}'\n[judges.parameters]\nprofile = 'paper'\ndisclosure = 'paper'\n"
        for name in ("gemini-3-flash", "gpt-5-mini")
    )
    uses = ("flux2-dev", "qwen-image-edit-2511", "step1x-edit-v1p2")
    editors = "".join(f"[[editors]]\nuse = '{name}'\n" for name in uses)
    folder = write(tmp_path, judges=judges, editors=editors, extra="[ensemble]\nrule = 'paper'\n")
    with RecordedRun.open(runs.fill(folder, answer)) as run:
        names = paper_names(run.design)
    assert isinstance(names, PaperNames)
    assert set(names.editors.values()) == {"FLUX.2-dev", "Step1X-Edit-v1p2", "Qwen-Image-Edit-2511"}
    text = "\n".join(names.differences)
    assert not [words for words in ("seed", "labels", "Your scores are by", "configuration") if words in text]


@pytest.mark.parametrize("why", ["planted", "another editor", "another prompt"])
def test_what_is_not_the_papers_is_not_compared(tmp_path: Path, why: str):
    editors = {
        "planted": "[[editors]]\nuse = 'planted'\nname = 'FLUX.2-dev'\n",
        "another editor": "[[editors]]\nuse = 'noop'\nname = 'ours'\n",
    }
    folder = write(tmp_path, editors=editors.get(why, FLUX))
    if why == "another prompt":
        (folder / "mine.csv").write_text("id,text,category,subcategory\nM-01,Smile.,own,own\n")
        text = (folder / "audit.toml").read_text()
        (folder / "audit.toml").write_text(re.sub(r"only = .*", "sets = ['diagnostic', './mine.csv']", text))
    with RecordedRun.open(runs.fill(folder, answer)) as run:
        assert paper_names(run.design) is None
        page = page_of(run)
        assert "paper" not in "".join(as_markdown(table) for table in make_tables(run) if table.number == 4).replace(
            "of the paper", ""
        )
    assert '<section id="paper">' not in page


def test_the_report_has_a_section_with_both_numbers(run: RecordedRun):
    section = page_of(run).partition('<section id="paper">')[2].partition("</section>")[0]
    assert "Compared with the paper" in section
    assert "Table 20 of the paper" in section
    assert "does not contain the paper’s number" in section
    assert "the paper edits 84 photographs from FairFace" in section


INTERVAL = Interval(value=2.0, low=1.0, high=3.0, confidence=0.95, method="by hand")


@pytest.mark.parametrize(
    ("table", "head", "row", "section", "expected"),
    [
        (5, "Δ Race Change (↓)", "Black", "ours", "-1.48"),
        (26, "Δ", "Black", "ours", "-1.48"),
        (26, "Baseline Drift", "Black", "ours", {"arm": "baseline"}),
        (26, "w/ Feature", "Black", "ours", {"arm": "feature"}),
        (21, "Δ Skin", "Indian", "ours", {"quantity": "skin_tone", "group": "Indian"}),
        (7, "Stereotype Followed", "ours", "two people", {"statistic": "stereotype followed"}),
        (6, "Race Change", "ours", "people", {"quantity": "race_change", "judge": "people"}),
        (6, "Race Change", "ours", "models − people", ""),
        (5, "Δ at equal baseline", "Black", "ours", ""),
        (7, "Stereotype Followed", "ours", "one person", ""),
    ],
)
def test_every_table_of_the_paper_finds_its_own_number(
    table: int, head: str, row: str, section: str, expected: str | dict[str, str]
):
    number = Number(outcome=INTERVAL, form="change", portraits=3, edits=9)
    made = PaperTable(
        number=table, caption="", head=("", head), rows=(TableRow(label=row, cells=(number,), section=section),)
    )
    names = PaperNames(editors={"ours": "FLUX.2-dev"}, differences=("Not the same.",))
    ((shown,),) = [each.cells for each in with_paper(made, names).rows]
    if isinstance(expected, dict):
        wanted = (
            {"place": f"Table {table}", "editor": "FLUX.2-dev"} | ({} if table in (6, 7) else {"group": row}) | expected
        )
        (known,) = [each for each in published() if all(getattr(each, name) == wanted[name] for name in wanted)]
        expected = published_text(known)
        assert expected
    assert shown.paper.replace("−", "-") == expected.replace("−", "-")


def test_numbers_are_printed_as_the_paper_prints_them():
    lightened = next(number for number in published() if (number.place, number.quantity) == ("§5.1", "skin_lightened"))
    assert published_text(lightened) == "62–71 %"
    gap = next(number for number in published() if (number.place, number.statistic) == ("Table 20", "max - min"))
    assert published_text(gap) == "17.2 points"


def differences(folder: Path, editors: str = FLUX, extra: str = "", arms: str = "") -> str:
    write(folder, editors=editors, extra=extra)
    (folder / "audit.toml").write_text(arms + (folder / "audit.toml").read_text())
    with RecordedRun.open(runs.fill(folder, answer)) as run:
        names = paper_names(run.design)
    return "\n".join(names.differences)


@pytest.mark.parametrize(
    ("pattern", "seed", "known"), [("{portrait}_{prompt}.png", 0, False), ("{portrait}_{prompt}_{seed}.png", 0, True)]
)
def test_the_seed_of_finished_files_is_known_only_where_their_names_say_it(
    tmp_path: Path, pattern: str, seed: int, known: bool
):
    editor = (
        f"[[editors]]\nuse = 'folder'\nname = 'FLUX.2-dev'\nparameters = {{ folder = '.', pattern = '{pattern}' }}\n"
    )
    text = differences(tmp_path, editor)
    assert (f"FLUX.2-dev runs with seed {seed}; the paper's is 42." in text) == known
    assert ("The seed of FLUX.2-dev is not known; the paper's is 42." in text) != known


STRATIFIED = "[sample]\nsize = 20\n"


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        ("", "Your cases are the whole grid, not selected by their outcome."),
        (STRATIFIED, "Your cases are drawn before any result was seen, not selected by their outcome."),
        ("[sample]\ncells = 'cells.csv'\n", "The run does not say how its cases were selected."),
        ("[sample]\ncells = 'cells.csv'\nby = 'drift'\n", "Your cases were selected because they had drifted"),
    ],
)
def test_how_cases_were_selected_is_said_as_far_as_the_run_knows(tmp_path: Path, sample: str, said: str):
    (tmp_path / "cells.csv").write_text("editor,portrait,prompt\nFLUX.2-dev,p00,O-01\nFLUX.2-dev,p01,O-01\n")
    assert said in differences(tmp_path, extra=sample, arms='arms = ["baseline", "feature"]\n')


def test_cases_are_spoken_of_only_where_there_is_a_mitigation(tmp_path: Path):
    text = differences(tmp_path, extra=STRATIFIED)
    assert "cases" not in text
    assert "Figure 4b" not in text, "the race cut is the paper's"


def test_another_race_cut_is_named(tmp_path: Path):
    assert "A race counts as changed from 2 on; in the paper from 3 on" in differences(tmp_path, extra="race_cut = 2\n")


NEAR = "[[editors]]\nuse = 'noop'\nname = 'flux'\n"


def test_an_editor_that_is_nearly_the_papers_is_told_what_to_write(tmp_path: Path):
    with RecordedRun.open(runs.fill(write(tmp_path / "one", editors=NEAR), answer)) as run:
        assert paper_names(run.design) is None
        assert missing_names(run.design) == (
            "The paper has no 'flux'. If it is FLUX.2-dev, add to its [[editors]] `paper = \"flux2-dev\"`."
        )
    with RecordedRun.open(runs.fill(write(tmp_path / "two", editors=NEAR + "paper = 'flux2-dev'\n"), answer)) as run:
        names = paper_names(run.design)
        assert names.editors == {"flux": "FLUX.2-dev"}, "its name stays the user's"
        assert not missing_names(run.design)
    with pytest.raises(InvalidAudit, match="the paper has no editor 'flux'; write one of flux2-dev"):
        audit.load(write(tmp_path / "three", editors=NEAR + "paper = 'flux'\n"))


@pytest.mark.parametrize("editor", ["ours", "FLUX.2-dev"])
def test_no_hint_where_nothing_is_near_or_all_is_the_papers(tmp_path: Path, editor: str):
    with RecordedRun.open(runs.fill(write(tmp_path, editors=NEAR.replace("flux", editor)), answer)) as run:
        assert not missing_names(run.design)


def imported(folder: Path, editor: str, names: list[str], **asked: object) -> RecordedRun:
    rows = [f"p{who},{editor},{prompt},{1 + who % 3}" for who in range(6) for prompt in names]
    (folder / "rows.csv").write_text("\n".join(["portrait,editor,prompt,race_change", *rows]))
    import_rows(folder / "rows.csv", folder / "run", RowsAsked(**asked), ColumnMapping())
    return RecordedRun.open(folder / "run")


def test_imported_rows_are_compared_by_the_papers_ids_and_their_seed_is_unknown(tmp_path: Path):
    run = imported(tmp_path, "mine", ["O-01", "V-05"], paper={"mine": "qwen-image-edit-2511"})
    names = paper_names(run.design)
    assert names.editors == {"mine": "Qwen-Image-Edit-2511"}
    assert "The seed of mine is not known; the paper's is 0." in names.differences
    assert not missing_names(run.design)


@pytest.mark.parametrize(
    ("editor", "asked", "said"),
    [
        ("flux2-dev", ["a", "b"], "no prompt is recognised as its own. Name prompts by its ids"),
        ("flux2-dev", ["O-01", "b"], "1 of 2 prompts are not its own (b); name them by the paper's ids"),
        ("flux", ["O-01"], "import again with `--paper flux=flux2-dev`"),
        ("other", ["a"], ""),
    ],
)
def test_rows_that_are_nearly_the_papers_are_told_what_to_write(
    tmp_path: Path, editor: str, asked: list[str], said: str
):
    hint = missing_names(imported(tmp_path, editor, asked).design)
    assert said in hint if said else not hint


def test_role_sentences_say_whether_they_are_whole(tmp_path: Path):
    whole, printed = prompts.roles(), prompts.roles_as_printed()
    for number, (asked, said) in enumerate(((whole, "are whole: 30 of 50"), (printed, "are abbreviated as in"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        rows = [f'm{place}+f{place},Male+Female,flux2-dev,{p.id},"{p.text}",1' for place, p in enumerate(asked)]
        (folder / "rows.csv").write_text("\n".join(["portrait,gender,editor,prompt,prompt_text,role_target", *rows]))
        import_rows(folder / "rows.csv", folder / "run", RowsAsked(groups=("gender",)), ColumnMapping())
        names = paper_names(RecordedRun.open(folder / "run").design)
        assert [text for text in names.differences if "Role sentences" in text and said in text]
        assert len([text for text in names.differences if "Role sentences" in text]) == 1
