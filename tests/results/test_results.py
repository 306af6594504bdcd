from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stillme import audit
from stillme import runs as results
from stillme.api.pipeline import run_stages
from stillme.audit import Audit
from stillme.core.errors import InvalidAudit
from stillme.core.types import Arm
from stillme.estimates.rows import EditState, RatingState
from stillme.mitigation.arms import NotPaired
from stillme.runs import RecordedRun
from stillme.runs.store import Store
from stillme.work.recording import record
from tests.records import rows_in

Write = Callable[..., Path]
TWO = """use = "scripted"
name = "one"
parameters = {{ scores = {{ skin_tone = 3, edit_success = 2 }}, share = {share} }}
[[judges]]
use = "scripted"
name = "two"
parameters = {{ scores = {{ skin_tone = 4 }} }}
"""


def gathered(folder: Path) -> results.Results:
    run_stages(folder, ("edit", "judge"))
    return RecordedRun.open(folder).results


def scores(found: results.Results, judge: str, axis: str) -> np.ndarray:
    return next(each.value for each in found.scores if (each.judge, each.axis) == (judge, axis))


@pytest.mark.parametrize(("rule", "expected"), [("mean", 3.5), ("paper", 4.0), ("code", 4.0), ("worst", 4.0)])
def test_several_judges_become_one_by_the_audits_rule(write_audit: Write, rule: str, expected: float):
    folder = write_audit(judge=TWO.format(share=0), extra=f'[ensemble]\nrule = "{rule}"')
    found = gathered(folder)
    assert set(scores(found, f"ensemble ({rule})", "skin_tone")) == {expected}
    assert not any(each.judge.startswith("ensemble") and each.axis == "edit_success" for each in found.scores)


def test_an_edit_that_a_judge_abstains_on_has_no_combined_score(write_audit: Write):
    found = gathered(write_audit(judge=TWO.format(share=0.5)))
    one, both = scores(found, "one", "skin_tone"), scores(found, "ensemble (mean)", "skin_tone")
    assert 0 < np.isnan(one).sum() < 12
    assert np.array_equal(both, np.where(np.isnan(one), np.nan, 3.5), equal_nan=True)


def test_refusals_and_missing_edits_have_a_state_and_no_score(write_audit: Write):
    found = gathered(write_audit('use = "moody"'))
    refused = found.edits.state == EditState.REFUSED
    assert refused.any()
    for each in found.scores:
        assert np.isnan(each.value[refused]).all()
        assert (each.state[refused] == RatingState.MISSING).all()


def test_rows_of_an_earlier_configuration_stay_out(write_audit: Write):
    gathered(write_audit(prompts='["O-01", "O-02"]'))
    found = gathered(write_audit(prompts='["O-02"]'))
    assert [prompt.id for prompt in found.edits.prompts] == ["O-02"]
    assert len(found.edits) == 6


def test_too_many_judges_for_a_rule_of_two(write_audit: Write):
    third = '[[judges]]\nuse = "scripted"\nname = "three"\nparameters = { scores = { skin_tone = 1 } }'
    three = TWO.format(share=0) + third
    with pytest.raises(InvalidAudit, match="is for two judges, but there are 3"):
        audit.load(write_audit(judge=three, extra='[ensemble]\nrule = "paper"'))


def test_arms_that_differ_in_more_than_the_arm_are_not_compared(write_audit: Write, monkeypatch: pytest.MonkeyPatch):
    folder = write_audit(extra='[mitigation]\nextractors = ["measured"]')
    text = (folder / "audit.toml").read_text()
    (folder / "audit.toml").write_text('arms = ["baseline", "placebo"]\n' + text)
    loaded = audit.load(folder, ready=False)
    plain = [request for request in loaded.requests(loaded.editors[0]) if request.arm is Arm.BASELINE]
    faster = replace(plain[0].editor, parameters={"steps": 4})
    # As in the paper's scripts: one of two arms ran with other settings.
    other = [replace(request, arm=Arm.PLACEBO, editor=faster) for request in plain]
    mixed = [request for both in zip(plain, other, strict=True) for request in both]
    monkeypatch.setattr(Audit, "requests", lambda self, named: iter(mixed))
    with Store.writing(folder) as store, pytest.raises(NotPaired, match="steps: None and 4"):
        record(loaded, store)


JUDGES = """
use = "scripted"
name = "mild"
parameters = {{ scores = {{ edit_success = 4, race_change = 1 }} }}
[[judges]]
use = "scripted"
name = "stern"
parameters = {{ scores = {{ edit_success = {success}, race_change = {race} }} }}
"""


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    return rows_in(folder / "tables" / "judges" / name)


def test_what_judges_dispute_is_listed_with_what_each_said(write_audit: Write):
    folder = write_audit(judge=JUDGES.format(success=3, race=3))
    run_stages(folder, ("edit", "judge", "estimate"))
    listed = rows(folder, "flagged.csv")
    assert {row["priority"] for row in listed} == {"medium"}
    assert {row["axis"] for row in listed} == {"race_change"}
    assert {(row["judge"], row["score"]) for row in listed} == {("mild", "1"), ("stern", "3")}
    assert len(listed) == 12 * 2
    shares = {row["measure"]: row["value"] for row in rows(folder, "agreement.csv") if row["axis"] == "edit_success"}
    assert (shares["exact"], shares["within_one"]) == ("0", "1")


def test_judges_who_agree_leave_nothing_to_people(write_audit: Write):
    folder = write_audit(judge=JUDGES.format(success=4, race=2))
    run_stages(folder, ("edit", "judge", "estimate"))
    assert rows(folder, "flagged.csv") == []


def test_a_single_judge_has_nobody_to_agree_with(write_audit: Write):
    folder = write_audit()
    run_stages(folder, ("edit", "judge", "estimate"))
    assert not (folder / "tables" / "judges").exists()
