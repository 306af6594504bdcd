"""An editor that is unfair only where the judge is blind comes out as "cannot tell", never as "no difference"."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stillme.core.rubric import load_limits as load
from stillme.core.types import Rated, Rating, Request
from stillme.estimates import estimate
from stillme.findings.calibration import CalibrationVerdict, records
from stillme.findings.gate import Asked, gate
from stillme.findings.gate import Verdict as Decided
from stillme.findings.tables.estimates import write_tables
from stillme.report.data import report_data
from stillme.report.findings import answers
from stillme.report.gaps import decisive_gaps
from stillme.runs import RecordedRun
from tests.calibration.test_measuring import calibrated, truthful
from tests.runs import Answer, fill, group, people, scores, write_audit

LIGHTNESS = {"a": 70.0, "b": 35.0}
NOTE = "cannot tell on darker skin"


def unseen(_editor: str, request: Request) -> dict[str, Rating]:
    """Everybody in group b is lightened; the judge, blind on darker skin, says that nobody was."""
    return scores() | {"source_skin_l": Rated(score=LIGHTNESS[group(request)])}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedRun]:
    tried = calibrated("skin_delta_l", truthful)
    passed = dict.fromkeys(load().groups, CalibrationVerdict.PASSED)
    by_tone = dict.fromkeys(("race_change", "edit_success"), passed)
    by_tone["skin_tone"] = passed | {"darker": CalibrationVerdict.FAILED}
    place = tmp_path_factory.mktemp("blind")
    folder = write_audit(place / "run", people(place / "people", per_group=40))
    with pytest.MonkeyPatch.context() as patch, RecordedRun.open(fill(folder, unseen)) as opened:
        patch.setattr(records, "calibration_of_judge", lambda _: replace(tried, by_tone=by_tone))
        yield opened


def test_a_run_knows_its_peoples_skin_tones_from_its_folder_alone(run: RecordedRun):
    tones = {portrait.attributes["group"]: run.results.tones[portrait.id] for portrait in run.design.portraits}
    assert tones == {"a": "lighter", "b": "darker"}


def test_the_report_cannot_tell(run: RecordedRun):
    data = report_data(run, estimate(run.results.edits, run.results.scores, run.settings))
    _, kept = answers(data, decisive_gaps(data))
    assert kept.verdict == "cannot tell"
    assert kept.sentences == (f"Skin Tone Change: the judge {NOTE}.",)


def test_the_gate_is_inconclusive_where_the_judge_is_blind_and_decides_elsewhere(run: RecordedRun):
    rules = ("skin_lightened <= 0.2", "skin_lightened.disparity@group <= 0.2", "race_changed <= 0.2")
    rules += ("skin_lightened.group@group#a <= 0.2", "skin_lightened.group@group#b <= 0.2")
    everyone, gap, race, lighter, darker = gate(run, Asked(rules=rules)).decisions
    for decision in (everyone, gap, darker):
        assert decision.verdict is Decided.INCONCLUSIVE
        assert NOTE in decision.checks[0].reason
    assert race.verdict is lighter.verdict is Decided.PASSED


def test_tables_say_so_beside_each_number(run: RecordedRun, tmp_path: Path):
    results = run.results
    tables = write_tables(
        estimate(results.edits, results.scores, run.settings), tmp_path, run.settings, records.standing_of(run)
    )
    with tables[0].open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["quantity"] == "skin_tone"]
    notes = {(row["scope"], row["group"]): row["judge_note"] for row in rows}
    assert notes["group", "a"] == ""
    assert notes["group", "b"] == notes["all", ""] == notes["disparity", ""] == NOTE


@pytest.mark.parametrize(
    ("groups", "answer", "standing"),
    [("a", unseen, "passed"), ("ab", lambda *_: scores(), "blind: darker")],
    ids=["whom the judge sees", "without a measured skin tone"],
)
def test_a_partial_validation_counts_on_people_whom_the_judge_sees(
    tmp_path: Path, run: RecordedRun, groups: str, answer: Answer, standing: str
):
    folder = write_audit(tmp_path / "other", people(tmp_path / "some", groups=groups))
    with RecordedRun.open(fill(folder, answer)) as other:
        assert records.standing_of(other)["judge"]["skin_tone"] == standing
