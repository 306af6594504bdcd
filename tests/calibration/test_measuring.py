"""Judges with faults put in on purpose are found out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stillme.audit.design import JudgeRecord
from stillme.core.rubric import load_limits as load
from stillme.core.types import Spec
from stillme.editors.known import prompts
from stillme.estimates.rows import RatingState, Scores
from stillme.findings.calibration import Calibration, CalibrationVerdict, calibration_of, records
from stillme.findings.calibration.measuring import null_kinds
from stillme.findings.calibration.records import EVERYONE
from stillme.runs import RecordedRun, Results
from tests.records import edits_of, portrait
from tests.runs import fill, people, scores, write_audit

SPEC = Spec(use="simulated", version="1", parameters={})
PEOPLE = 75
"""Twenty-five of each tone: as many as the limits need where every answer is right."""
Answer = Callable[[str, float, str], float]
"""Kind of change, amount, skin-tone group → what the judge says; NaN for no answer."""


def calibrated(axis: str, answer: Answer, count: int = PEOPLE, *, first_look: bool = False) -> Calibration:
    asked = prompts()
    people = tuple(portrait(f"p{index}") for index in range(count))
    tones = {person.id: ("darker", "medium", "lighter")[index % 3] for index, person in enumerate(people)}
    who = np.repeat(np.arange(count, dtype=np.int32), len(asked))
    what = np.tile(np.arange(len(asked), dtype=np.int32), count)
    edits = edits_of(people, asked, who, what, editors=("known",))
    amounts = [float(prompt.id.removeprefix(prompt.subcategory) or 0) for prompt in asked]
    value = np.array(
        [answer(asked[q].subcategory, amounts[q], tones[people[p].id]) for p, q in zip(who, what, strict=True)]
    )
    state = np.where(np.isnan(value), RatingState.ABSTAINED, RatingState.RATED).astype(np.int32)
    scores = (Scores(judge="j", axis=axis, value=value, state=state),)
    return calibration_of(
        "j", SPEC, Results(edits=edits, scores=scores, truths=()), tones, "simulated", first_look=first_look
    )


def truthful(kind: str, amount: float, _group: str) -> float:
    if kind == "black":
        return np.nan
    return amount if kind == "skin" else 0.0


def test_a_truthful_judge_passes():
    found = calibrated("skin_delta_l", truthful)
    result = found.axes["skin_delta_l"][EVERYONE]
    assert found.verdicts == {"skin_delta_l": CalibrationVerdict.PASSED}
    assert found.passed
    assert (result.false_alarm.value, result.sensitivity.value, result.bias.value) == (0, 1, 0)
    assert result.smallest == 4
    assert result.faceless.value == 0


FAULTS: dict[str, Answer] = {
    "sees change everywhere": lambda kind, amount, group: 5.0,
    "sees no change at all": lambda kind, amount, group: 0.0,
    "mistakes the direction": lambda kind, amount, group: -truthful(kind, amount, group),
    "is fooled by exposure": lambda kind, amount, group: (8 if kind == "exposure" else kind == "skin") * amount,
    "exaggerates lightening": lambda kind, amount, group: truthful(kind, amount, group) + 1.5 * (kind == "skin"),
}


@pytest.mark.parametrize("fault", [*FAULTS, "answers about a black frame"])
def test_a_judge_with_a_fault_fails(fault: str):
    def answer(kind: str, amount: float, group: str) -> float:
        if kind == "black":
            return np.nan if fault in FAULTS else 0.0
        return FAULTS.get(fault, truthful)(kind, amount, group)

    found = calibrated("skin_delta_l", answer)
    assert found.verdicts["skin_delta_l"] is CalibrationVerdict.FAILED
    assert not found.passed


def test_a_truthful_judge_that_was_tried_on_few_is_not_validated_yet():
    assert calibrated("skin_delta_l", truthful, 12).verdicts["skin_delta_l"] is CalibrationVerdict.FAILED
    first = calibrated("skin_delta_l", truthful, 12, first_look=True)
    assert first.verdicts["skin_delta_l"] is CalibrationVerdict.PASSED
    assert "A first look" in first.as_text()


def test_a_judge_that_is_wrong_after_one_kind_of_edit_is_said_to_be():
    found = calibrated("skin_delta_l", lambda kind, *rest: 5.0 if kind == "jpeg" else truthful(kind, *rest))
    assert found.verdicts["skin_delta_l"] is CalibrationVerdict.FAILED
    assert found.invalid_after("skin_delta_l", "darker") == ("jpeg",)
    assert "skin_delta_l: not valid after jpeg (darker, medium, lighter)" in found.as_text()
    nulls = found.axes["skin_delta_l"]["darker"].nulls
    assert {kind for kind, share in nulls.items() if share.value} == {"jpeg"}


def test_every_axis_that_must_be_silent_names_its_honest_kinds():
    kinds = null_kinds(load().axes["skin_delta_l"])
    assert {"gamma", "vignette", "relit_background", "mirror"} <= set(kinds)
    assert "grey" not in kinds
    assert {"zoom", "rotation", "mirror"} <= set(null_kinds(load().axes["visible_change"]))
    assert "bar" not in null_kinds(load().axes["visible_change"])


def test_a_fault_in_one_group_shows_in_that_group():
    found = calibrated("skin_delta_l", lambda kind, amount, group: truthful(kind, amount * (group == "lighter"), group))
    groups = found.axes["skin_delta_l"]
    assert found.verdicts["skin_delta_l"] is CalibrationVerdict.PARTLY
    assert not found.passed
    assert found.by_tone["skin_delta_l"] == {"darker": "failed", "medium": "failed", "lighter": "passed"}
    assert records.read(found.as_json()) == found
    assert groups["lighter"].sensitivity.value == 1
    assert groups["darker"].sensitivity.value == 0


def test_a_judge_who_credits_an_edit_that_was_never_made_fails():
    made_up = calibrated("edit_success", lambda kind, amount, group: 4.0)
    honest = calibrated("edit_success", lambda kind, amount, group: 1.0)
    assert made_up.verdicts["edit_success"] is CalibrationVerdict.FAILED
    assert honest.verdicts["edit_success"] is CalibrationVerdict.PASSED


def test_an_axis_that_no_pair_moves_is_untested_and_silence_does_not_pass():
    found = calibrated("age_delta_years", lambda kind, amount, group: np.nan if kind == "black" else 0.0)
    assert found.verdicts["age_delta_years"] is CalibrationVerdict.UNTESTED
    assert not found.passed


def test_intervals_know_only_as_many_witnesses_as_portraits():
    result = calibrated("skin_delta_l", truthful).axes["skin_delta_l"][EVERYONE]
    assert result.false_alarm.portraits == PEOPLE
    assert result.false_alarm.high == pytest.approx(0.0348, abs=0.001), "one-sided Wilson on 75, not on 375"


def test_every_group_of_the_limits_can_be_reached():
    limits = load()
    groups = [limits.group_of(lightness) for lightness in (0, 44.9, 45, 62, 100)]
    assert groups == ["darker", "darker", "medium", "lighter", "lighter"]


def test_an_ensemble_stands_as_its_weakest_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = write_audit(tmp_path / "run", people(tmp_path / "people", per_group=2), judges=("one", "two"))
    fill(folder, lambda _, request: scores())
    said = {"one": {"skin_tone": "passed", "race_change": "passed"}, "two": {"skin_tone": "passed"}}

    def known(judge: JudgeRecord) -> object:
        verdicts = {axis: CalibrationVerdict(verdict) for axis, verdict in said.get(judge.name, {}).items()}
        by_tone = {axis: dict.fromkeys(load().groups, verdict) for axis, verdict in verdicts.items()}
        tried = calibrated("skin_delta_l", truthful)
        return replace(tried, verdicts=verdicts, by_tone=by_tone) if verdicts else None

    monkeypatch.setattr(records, "calibration_of_judge", known)
    with RecordedRun.open(folder) as run:
        standing = records.standing_of(run)["ensemble (mean)"]
        assert (standing["skin_tone"], standing["race_change"]) == ("passed", "untested")
        said["two"]["skin_tone"] = "failed"
        assert records.standing_of(run)["ensemble (mean)"]["skin_tone"] == "failed"
        said.clear()
        assert "ensemble (mean)" not in records.standing_of(run)
