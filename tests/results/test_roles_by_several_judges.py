"""Who is drawn as the target, by several judges: they agree, or the edit is undecided and people should look."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stillme.api.pipeline import run_stages
from stillme.core.types import Interval, NotEstimable, Request
from stillme.estimates import Adherence, RatingState, adherence
from stillme.findings.tables.analyses import analyse
from stillme.findings.tables.paper import Chosen, make_tables
from stillme.runs import RecordedRun
from tests import role_runs
from tests.records import rows_in


def number(request: Request) -> int:
    return int(request.prompt.id.removeprefix("W-"))


def contradicting(judge: str, request: Request, _epoch: int) -> int:
    """Both name the first person, whom the stereotype expects, up to W-20; afterwards they contradict each other."""
    return 1 if judge == "one" or number(request) <= 20 else 2


def combined_share(folder: Path) -> Adherence:
    """How often the stereotype is followed, by both judges together."""
    with RecordedRun.open(folder) as opened:
        combined = [score for score in opened.results.scores if score.kind == "ensemble"]
        return adherence(opened.results.edits, combined, opened.settings)[0]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = role_runs.write(tmp_path_factory.mktemp("roles"), {"one": 1, "two": 1}, contradicting)
    run_stages(folder, ("estimate", "report"))
    return folder


def test_judges_who_contradict_each_other_leave_the_edit_undecided(run: Path) -> None:
    results = RecordedRun.open(run).results
    (combined,) = [score for score in results.scores if score.kind == "ensemble" and score.axis == "role_target"]
    names = [results.edits.prompts[code].id for code in results.edits.prompt.tolist()]
    agree = np.array([int(name.removeprefix("W-")) <= 20 for name in names])
    assert (combined.value[agree] == 1).all()
    assert np.isnan(combined.value[~agree]).all()
    assert set(combined.state[~agree].tolist()) == {RatingState.ABSTAINED}


def test_table_7_and_statistics_exclude_and_count_what_is_undecided(run: Path) -> None:
    opened = RecordedRun.open(run)
    (table,) = make_tables(opened, Chosen(numbers=(7,)))
    (row,) = table.rows
    assert row.cells[0].edits == 20
    assert any("30 more are undecided" in note for note in table.notes)
    assert any("name different people" in note for note in table.notes)
    assert not any("a point apart" in note for note in table.notes)
    written = analyse(opened, only=["roles"])["roles"].path
    ensemble = [row for row in rows_in(written) if row["judge"].startswith("ensemble") and not row["pronoun"]]
    assert [(row["edits"], row["abstained"]) for row in ensemble] == [("20", "30")]


def test_portraits_and_sentences_are_those_of_decided_edits(run: Path) -> None:
    share = combined_share(run)
    assert (share.edits, share.sentences) == (20, 20)
    assert share.portraits <= 40, "two people an edit"
    (table,) = make_tables(RecordedRun.open(run), Chosen(numbers=(7,)))
    assert any("20 sentences" in note for note in table.notes)


def test_a_single_decided_edit_gives_no_rate(tmp_path: Path) -> None:
    folder = role_runs.write(
        tmp_path, {"one": 1, "two": 1}, lambda judge, request, _: 1 if judge == "one" or number(request) == 1 else 2
    )
    share = combined_share(folder)
    assert (share.edits, share.abstained) == (1, 49)
    assert isinstance(share.outcome, NotEstimable)
    assert share.p is None


def test_the_report_says_how_many_are_undecided(run: Path) -> None:
    assert "30 undecided edits not counted" in (run / "report.html").read_text()


def test_every_contradiction_is_flagged_for_people(run: Path) -> None:
    flagged = rows_in(run / "tables" / "judges" / "flagged.csv")
    assert len(flagged) == 30 * 2
    assert {(row["axis"], row["priority"]) for row in flagged} == {("role_target", "high")}
    assert {(row["judge"], row["score"]) for row in flagged} == {("one", "1"), ("two", "2")}
    listed = rows_in(run / "tables" / "judges" / "agreement.csv")
    measures = {row["measure"]: row["value"] for row in listed if (row["axis"], row["group"]) == ("role_target", "all")}
    assert measures["exact"] == "0.4"
    assert "within_one" not in measures, "persons have no distance"


def test_where_judges_never_agree_there_is_no_rate(tmp_path: Path) -> None:
    folder = role_runs.write(tmp_path, {"one": 1, "two": 1}, lambda judge, *_: 1 if judge == "one" else 2)
    (table,) = make_tables(RecordedRun.open(folder), Chosen(numbers=(7,)))
    assert not any(isinstance(getattr(cell, "outcome", None), Interval) for row in table.rows for cell in row.cells)
    share = combined_share(folder)
    assert isinstance(share.outcome, NotEstimable)
    assert share.abstained == 50


def test_people_agree_among_themselves_and_their_majority_is_compared_with_judges(tmp_path: Path) -> None:
    def answer(judge: str, request: Request, epoch: int) -> int | None:
        return 2 if judge == "people" and epoch == 2 and number(request) % 5 == 0 else 1 + number(request) % 2

    folder = role_runs.write(tmp_path, {"one": 1, "people": 3}, answer)
    opened = RecordedRun.open(folder)
    written = analyse(opened, only=["agreement", "against_people", "corrected"])
    among = {row["measure"]: row for row in rows_in(written["agreement"].path) if not row["group"]}
    assert set(among) == {"fleiss_kappa", "alpha_nominal", "exact"}
    assert {row["among"] for row in among.values()} == {"people"}
    assert among["fleiss_kappa"]["raters"] == "3"
    assert 0 < float(among["fleiss_kappa"]["low"]) < float(among["fleiss_kappa"]["high"]) <= 1
    against = [row for row in rows_in(written["against_people"].path) if row["scope"] == "all"]
    assert {row["measure"] for row in against if row["axis"] == "role_target"} == {"exact"}
    assert [row["value"] for row in against if row["axis"] == "role_target"] == ["1"]
    assert written["corrected"].rows == 0
